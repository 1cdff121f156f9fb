from __future__ import annotations

import msgspec
import numpy as np
import pytest

from drut.bench.compare.files import blocks_csv, load, save, write
from drut.bench.compare.schema import SCHEMA, Block, Cell, Comparison, Contestant, GateRecord
from drut.bench.compare.summary import summary
from drut.bench.compare.verdicts import figures_of, rankings, ratios
from drut.bench.result.figures import COMPARED, FIGURES
from drut.bench.stats.distribution import percentile
from drut.bench.stats.paired import paired
from drut.errors import DrutError
from tests.bench.compare.made import block

CELL = Cell("c@1", "synthetic", concurrency=1)
BLOCKS = [block(r, name, output_tokens_per_s=speed * (1 + 0.1 * r) * (1 + 0.01 * ((r + i) % 3)),
                ttft_ms_p50=50.0 / speed)
          for r in range(4) for i, (name, speed) in enumerate([("a", 100.0), ("b", 200.0), ("c", 101.0)])]


def test_ratios_are_paired_by_round_and_verdicts_follow_the_figures_own_direction() -> None:
    found = {(r.figure, r.contestant): r for r in ratios(BLOCKS, [CELL], "a", ["a", "b", "c"])}
    assert found.keys() == {(f, c) for f in ("output_tokens_per_s", "ttft_ms_p50") for c in "bc"}
    speed = found["output_tokens_per_s", "b"]
    assert speed.low < 2 < speed.high < 2.1
    assert (speed.verdict, speed.rounds) == ("better", 4)
    assert found["ttft_ms_p50", "b"].verdict == "better"
    assert found["output_tokens_per_s", "c"].verdict == "level"
    reverse = {(r.figure, r.contestant): r for r in ratios(BLOCKS, [CELL], "b", ["a", "b"])}
    assert {r.verdict for r in reverse.values()} == {"worse"}


def test_void_blocks_and_failed_percentiles_do_not_count_nor_times_that_were_not_measured() -> None:
    for figure, zero in (("output_tokens_per_s", {3: 0.0}), ("ttft_ms_p50", {})):
        blocks = [block(0, "a", **{figure: 1.0}), block(1, "a", valid=False, **{figure: 2.0}),
                  block(2, "a", **{figure: "inf"}), block(3, "a", **{figure: 0.0}), block(4, "a")]
        assert figures_of(blocks, "c@1", figure) == {"a": {0: 1.0, **zero}}


def test_a_round_of_no_goodput_counts_against_who_had_it() -> None:
    """It was left out, and who held the limits now and then looked as if it always did."""
    speeds = {"a": [2.0, 2.1, 1.9, 2.0], "b": [0.0, 1.0, 0.0, 1.0], "c": [0.0] * 4}
    blocks = [block(r, name, goodput_per_s=x) for name, values in speeds.items() for r, x in enumerate(values)]
    found = {r.contestant: r for r in ratios(blocks, [CELL], "a", ["a", "b", "c"])}
    assert found["b"].value == pytest.approx(0.25)
    assert (found["b"].verdict, found["b"].rounds) == ("worse", 4)
    assert (found["c"].value, found["c"].low, found["c"].verdict) == (0.0, 0.0, "worse")
    assert ratios(blocks, [CELL], "c", ["a", "c"]) == []
    (ranking,) = rankings(blocks, [CELL], ["a", "b", "c"])
    assert ranking.groups == [["a"], ["b", "c"]]
    text = summary(msgspec.structs.replace(comparison(), blocks=blocks, ratios=list(found.values())))
    assert _row(text, "Goodput, 1/s") == ["1.999", "0.5", "0", "n/a"]


def test_the_slowest_of_few_answers_is_no_percentile() -> None:
    """Two engines whose answers are alike: the slowest of 60 and the slowest of 3."""
    rng = np.random.default_rng(5)

    def turn(number: int, name: str, count: int) -> Block:
        times = sorted(map(float, 100 * rng.lognormal(0, 0.2, count)))
        figures = {"ttft_ms_p50": percentile(np.array(times), 50), "ttft_ms_p99": percentile(np.array(times), 99)}
        return msgspec.structs.replace(block(number, name, **figures), samples={"ttft_ms": times, "e2e_ms": times})

    few = [turn(r, name, count) for r in range(5) for name, count in (("a", 60), ("b", 3))]
    assert {r.figure for r in ratios(few, [CELL], "a", ["a", "b"])} == {"ttft_ms_p50"}
    assert paired(*({b.round: b.figures["ttft_ms_p99"] for b in few if b.contestant == name}
                    for name in "ba")).apart  # type: ignore[union-attr, arg-type]
    text = summary(msgspec.structs.replace(comparison(), blocks=few, ratios=ratios(few, [CELL], "a", ["a", "b"])))
    assert "p99" not in text
    assert _row(text, "Responses per turn") == ["60", "3", "n/a", "n/a"]
    many = [turn(r, name, count) for r in range(5) for name, count in (("a", 200), ("b", 100))]
    assert {r.figure for r in ratios(many, [CELL], "a", ["a", "b"])} == {"ttft_ms_p50", "ttft_ms_p99"}


def test_rankings_name_equals_together_and_leave_out_whom_they_may_not_rank() -> None:
    found = {r.figure: r.groups for r in rankings(BLOCKS, [CELL], ["a", "b", "c"])}
    assert found["output_tokens_per_s"] == [["b"], ["a", "c"]]
    assert {r.figure: r.groups for r in rankings(BLOCKS, [CELL], ["c", "b"])}["ttft_ms_p50"] == [["b"], ["c"]]


def test_figures_without_a_direction_or_that_are_alike_each_time_have_no_ratio() -> None:
    assert set(COMPARED) < set(FIGURES)
    assert not {"error_rate", "client_cpu", "peak_mb"} & set(COMPARED)


def comparison() -> Comparison:
    who = [Contestant("a", "mock", "A|`", "measured", gate=GateRecord(True, [], 1.0)),
           Contestant("b", "mock", "B", "measured"), Contestant("c", "mock", "C", "gate", "17% \x1b[31mare"),
           Contestant("d", "mock", "D", "failed", "it ended by SIGKILL", verified=False)]
    return Comparison(schema=SCHEMA, settings={"rounds": 4, "duration": 10.0, "warmup": 3.0}, environment={}, model="m",
                      contestants=who, cells=[CELL], blocks=BLOCKS, ratios=ratios(BLOCKS, [CELL], "a", ["a", "b"]),
                      base="a", notes=["a note"], rankings=rankings(BLOCKS, [CELL], ["a", "b"]))


def _row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_summary_states_plainly_who_is_better_than_the_base() -> None:
    text = summary(comparison())
    assert "**b is better than a**: Output; TTFT, median." in text
    assert "Places by output: 1 b; 2 a." in text
    assert "**failed the gate: not ranked**" in text
    assert "c: 17%  [31mare" in text
    assert "\x1b" not in text
    assert "A\\|'" in text
    assert "d: it ended by SIGKILL" in text
    assert "d: not verified here" in text
    assert "Not finished" not in text
    assert "**Not finished**" in summary(msgspec.structs.replace(comparison(), finished=False))


def test_the_summary_begins_with_a_chart_and_ends_with_excluded_turns() -> None:
    lost = msgspec.structs.replace(BLOCKS[0], valid=False, reasons=["the client sent late"])
    text = summary(msgspec.structs.replace(comparison(), blocks=[lost, *BLOCKS[1:]]))
    chart = text.split("```")[1].splitlines()
    bars = {words[0]: len(words[-1]) for line in chart if "█" in line and (words := line.split())}
    assert bars["b"] == 40
    assert 15 < bars["a"] < 25
    assert text.index("```") < text.index("## c@1") < text.index("| contestant") < text.index("## Appendix")
    assert text.endswith("- round 1, c@1, a: the client sent late")


def test_files_go_round_and_a_damaged_one_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    save(comparison(), tmp_path)
    assert load(tmp_path) == comparison()
    lines = blocks_csv(comparison().blocks).decode().splitlines()
    assert len(lines) == 1 + len(BLOCKS)
    assert lines[0].startswith("round,turn,contestant,cell,valid,started,output_tokens_per_s")
    for data, words in ((b"{", "not a comparison"), (b'{"schema": "x"}', "of the schema 'x'")):
        (tmp_path / "comparison.json").write_bytes(data)
        with pytest.raises(DrutError, match=words):
            load(tmp_path)
    with pytest.raises(DrutError, match="cannot write"):
        write(tmp_path / "none" / "file", b"")
    with pytest.raises(DrutError, match="cannot read"):
        load(tmp_path / "none")
