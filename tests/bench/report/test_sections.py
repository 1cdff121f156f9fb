"""The report of each kind of file, as Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from drut.bench.render.markdown import report
from drut.bench.render.section import Forest, Mark, Plot, ReportGroup
from drut.bench.report.assemble import section_of, sections
from drut.bench.report.documents import Document, DocumentSource
from tests.bench.report import samples
from tests.bench.report.hostile import hostile


def summary(document: Document) -> str:
    return report([section_of(document)])


def test_a_comparison_states_who_is_not_in_it_and_why() -> None:
    text = summary(samples.comparison())
    assert text.startswith("# tiny-135m: engines side by side\n")
    for words in ("- sglang: failed, ended with 1 in round 2: out of memory",
                  "- tensorrt-llm: cannot run, needs an NVIDIA GPU", "- mlx: failed the gate, agreement 0.41",
                  "1 of 96 blocks are void and in no figure.", "the client sent late: p99 is 9.1 ms",
                  "1-2: drut, openvino; 3: llama.cpp; 4: vllm", "not verified", "98.0% of 640",
                  "drut serve --port 8000",
                  "USD per million output tokens", "Example CPU", "openvino reads int8 weights"):
        assert words in text, words
    assert text.index("Output, tokens/s") < text.index("### Contestants") < text.index("### Appendix: excluded blocks")
    cost = text[text.index("## Cost"):]
    assert cost.index("| drut") < cost.index("0.409") < cost.index("| vllm")  # 0.12 an hour at 81.5 tokens/s


def test_an_unfinished_comparison_reports_so() -> None:
    assert "Not finished" in summary(msgspec.structs.replace(samples.comparison(rounds=1), finished=False))
    assert "Not finished" not in summary(samples.comparison(rounds=1))


def test_a_search_states_what_it_found_and_what_it_did_not() -> None:
    found = samples.a_search()
    text = summary(found)
    assert re.search(r"\| Highest rate that holds the limits, sessions/s +\| +6.48 \|", text)
    assert "1 of 17 runs are void" in text
    lost = msgspec.structs.replace(found, knee=msgspec.structs.replace(found.knee, value=None, low=None, high=None,
                                                                       why="the rates were too few"))
    assert "not found" in summary(lost)
    assert "the rates were too few" in summary(lost)


def plots_of(document: Any, group: str) -> dict[str, Plot | Forest]:
    found = [part for part in section_of(document).parts if isinstance(part, ReportGroup) and part.title == group]
    return {plot.caption: plot for plot in found[0].plots}


def test_throughput_against_users_has_the_saturation_on_it() -> None:
    plots = plots_of(samples.a_search(), "Load curves, closed loop")
    served = plots["Requests against users"]
    assert isinstance(served, Plot)
    assert [x for x, _ in served.lines[0].points] == [1, 4, 16, 64]
    most = 8 * 64 / 67
    assert served.lines[0].points[-1][1] == pytest.approx(most * (1 + 0.97 + 0.99) / 3)  # of three runs
    assert served.lines[0].bars[-1] == pytest.approx((0.97 * most, most))
    assert served.marks == [Mark(8.0, "Saturation", pytest.approx(7.76), pytest.approx(8.24), "y")]
    tokens = plots["Output against users"]
    assert isinstance(tokens, Plot)
    assert tokens.marks == [Mark(512.0, "Saturation", axis="y")]


def test_interactivity_has_a_line_for_each_kind_of_load_and_a_point_for_each_load() -> None:
    plots = plots_of(samples.a_search(), "Throughput against interactivity")
    named = {caption: list(plot.lines[0].names) for caption, plot in plots.items() if isinstance(plot, Plot)}
    assert named == {"Open loop": [f"{x} /s" for x in (0.8, 2, 3.2, 4.4, 5.6, 6.24, 6.48, 6.8, 8, 9.6)],
                     "Closed loop": ["1 user", "4 users", "16 users", "64 users"]}


def test_the_saturation_is_on_the_axis_of_rates_where_the_turns_of_a_session_are_known() -> None:
    found = samples.a_search()
    for turns, at in ((1.0, 8.0), (2.0, 4.0), (None, None)):
        plot = plots_of(msgspec.structs.replace(found, turns=turns), "Load curves, open loop")["TTFT against rate"]
        assert isinstance(plot, Plot)
        assert [m.name for m in plot.marks][:2] == ["Knee", "Highest rate that holds the limits"]
        assert next((m.at for m in plot.marks if m.name == "Saturation"), None) == at


def test_files_of_before_have_their_curves() -> None:
    """Without what was added to them: requests that ended, in the place of those served."""
    old = samples.a_search()
    old = msgspec.structs.replace(old, turns=None, saturation_tokens_per_s=None, points=[
        msgspec.structs.replace(p, served_per_s=None, effective=None, e2e_ms_mean=None) for p in old.points])
    plot = plots_of(old, "Load curves, closed loop")["Requests against users"]
    assert isinstance(plot, Plot)
    assert plot.lines[0].points[0] == (1, pytest.approx(2.0))


def test_an_ablation_shows_the_rounds_that_its_ratios_are_of() -> None:
    found = samples.ablation()
    lost = found.blocks[0]
    assert (lost.round, lost.contestant, lost.cell) == (0, "prefix/on", "shared prefix")
    blocks = [msgspec.structs.replace(b, valid=b is not lost, reasons=["late"] * (b is lost)) for b in found.blocks]
    found = msgspec.structs.replace(found, blocks=blocks)
    forest = plots_of(found, "Prefix cache")["Output, each round"]
    assert isinstance(forest, Forest)
    assert [(row.heading, row.name, len(row.dots)) for row in forest.rows] == [
        ("shared prefix", "off", 5), ("shared prefix", "on", 5), ("no prefix", "off", 6), ("no prefix", "on", 6)]
    values = [b.figures["output_tokens_per_s"] for b in blocks
              if (b.contestant, b.cell) == ("prefix/off", "shared prefix") and b.round]
    assert list(forest.rows[0].dots) == values
    assert forest.rows[0].value == median(values)  # type: ignore[type-var]
    assert (forest.rows[0].low, forest.rows[0].high) == (min(values), max(values))  # type: ignore[type-var]
    assert "### Prefix cache: Output, tokens/s, by round" in summary(found)


def test_an_ablation_shows_requests_by_the_latencies_it_judges() -> None:
    found = samples.ablation()
    failing = [msgspec.structs.replace(b, figures={**b.figures, "error_rate": 0.2}) if b.contestant == "prefix/off"
               else b for b in found.blocks]
    plots = plots_of(msgspec.structs.replace(found, blocks=failing), "Prefix cache")
    assert [name for name in plots if "of requests" in name] == [
        "TTFT of requests, shared prefix", "TTFT of requests, no prefix"]
    off, on = plots["TTFT of requests, no prefix"].lines  # type: ignore[union-attr]
    assert (off.who, on.who) == ("off", "on")
    assert off.points[-1][1] == pytest.approx(0.8)  # a fifth failed
    assert on.points[-1][1] == 1


def test_an_ablation_states_where_theory_is_wrong() -> None:
    rows = [line for line in summary(samples.ablation()).split("\n") if "as expected" in line]
    assert len(rows) == 8
    assert sum("not as expected" in row for row in rows) == 2
    assert all("Chunked prefill" in row for row in rows if "not as expected" in row)


def test_several_runs_are_put_beside_each_other() -> None:
    runs = [DocumentSource("first", Path(), samples.result(seconds=12.0)),
            DocumentSource("second", Path(), samples.a_search()),
            DocumentSource("third", Path(), samples.result(seconds=12.0, slow=2.0))]
    found = sections(runs)
    assert [s.kind for s in found] == ["results", "result", "search", "result"]
    assert "not interleaved" in report(found)
    assert [s.kind for s in sections(runs[:2])] == ["result", "search"]


def test_markdown_of_others_words_is_no_markup() -> None:
    bad = "![x](http://127.0.0.1/y) <script>"
    c = msgspec.structs.replace(hostile(samples.comparison(rounds=1)), notes=[bad], model=bad)
    text = summary(c)
    assert "<script" not in text
    assert "](" not in text
    assert all(char.isprintable() or char == "\n" for char in text)
