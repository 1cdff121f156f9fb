"""What a run leaves behind, from records made by hand."""

from __future__ import annotations

import csv
import datetime
import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from drut.bench.cost import Price
from drut.bench.files import make_folder
from drut.bench.load.fleet import LoadResult
from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.request import Slo
from drut.bench.render.columns import columns
from drut.bench.report.files import read, write
from drut.bench.report.markdown import markdown
from drut.bench.resources import ResourceWatch
from drut.bench.result.build import Billing, build
from drut.bench.result.schema import SCHEMA, Result
from drut.bench.server_side import ServerSide
from drut.bench.watch import Watched
from drut.errors import DrutError, RequestError
from tests.bench.records import failed, record

WINDOW = MeasureWindow(5.0, 35.0, 10.0)


def even(n: int = 600, **more: Any) -> list[LoadRecord]:
    """A request each 50 ms over the window, three tokens each, waits that vary a little."""
    rng = np.random.default_rng(0)
    return [record(5 + 0.05 * i, [w, w + 0.01, w + 0.02], 3, input_tokens=7, **more)
            for i, w in enumerate(rng.uniform(0.08, 0.12, n))]


def late(by_s: float, n: int = 600, which: slice = slice(None, None, 50)) -> list[LoadRecord]:
    """Every fiftieth of n is sent late, or those of `which`."""
    records = even(n)
    for r in records[which]:
        r.sent = r.scheduled + by_s
    return records


def result(records: list[LoadRecord], *, cpu: float = 0.1, behind: bool = False, window: MeasureWindow = WINDOW,
           wanted_s: float
           = 30.0, **more: Any) -> Result:
    load = LoadResult(records, window, [cpu], behind, 1.76e9)
    return build(load, {"url": "http://h", "model": "m", "seed": 0}, wanted_s=wanted_s, slo=Slo(ttft=0.2),
                 most_errors=0.01, **more)


def test_a_good_run_is_valid_and_steady() -> None:
    r = result(even())
    assert r.validity.valid
    assert r.steady.verdict == "steady"
    assert r.summary.ttft_ms.p50 == pytest.approx(100, abs=3)
    assert r.summary.tpot_ms.p99 == pytest.approx(10)
    assert r.summary.output_tokens_per_s == pytest.approx(60, rel=0.01)
    assert r.summary.goodput_per_s == pytest.approx(20)
    assert {c.percent: c.may for c in r.claims["ttft_ms"]}[99]


@pytest.mark.parametrize(("records", "more", "words"), [
    (late(0.0049), {}, None),
    (late(0.006), {}, "the client sent late: p99 of sent - scheduled is 6.0 ms, the maximum is 5.0 ms"),
    (late(0.05, 99, slice(1)), {}, None),  # one of few, however late
    (late(0.006, 99, slice(2)), {}, "the second latest of 99 of sent - scheduled is 6.0 ms"),
    (late(0.006, 19, slice(1)), {}, "the latest of 19 of sent - scheduled is 6.0 ms"),
    (even(), {"cpu": 0.81}, "used 81% of a CPU"),
    (even(), {"behind": True}, "not made fast enough"),
    (even() + [failed(20.0) for _ in range(7)], {}, "7 of 607 requests failed, the maximum is 1.0% (http 7)"),
    ([failed(20.0, "connect", sent=None, detail="refused")], {},
     "no request finished, for example: connect, refused"),
    ([record(1.0, [0.1], 1, counted=False)], {}, "no request was scheduled within"),
    (even(), {"wanted_s": 60.0}, "the workload ended after 30.0 of 60.0 s"),
])
def test_what_makes_a_run_void(records: list[LoadRecord], more: dict[str, Any], words: str | None) -> None:
    r = result(records, **more)
    if words is None:
        assert r.validity.valid
        return
    assert not r.validity.valid
    assert any(words in reason for reason in r.validity.reasons), r.validity.reasons
    assert markdown(r).index("**Void. ") < markdown(r).index("Steady state")


def test_a_late_client_may_be_two_in_a_hundred_of_a_long_wait() -> None:
    records = even()
    for r in records:
        r.sent = r.scheduled + 0.006
        r.arrivals = [t + 0.4 for t in r.arrivals]
    assert result(records).validity.valid  # 6 ms of 500


def test_the_file_is_as_documented_and_comes_back(tmp_path: Path) -> None:
    r = result([*even(), failed(20.0, "cut", detail="gone"), record(2.0, [0.1], 1, counted=False)])
    write(r, tmp_path)
    assert read(tmp_path / "result.json") == r
    data = json.loads((tmp_path / "result.json").read_text())
    assert data["schema"] == SCHEMA
    assert {"settings", "environment", "validity", "steady", "summary", "requests"} <= set(data)
    assert {"p50", "p90", "p95", "p99", "mean"} <= set(data["summary"]["ttft_ms"])
    assert data["summary"]["errors"]["kinds"] == {"cut": 1}
    first, bad = data["requests"][0], data["requests"][600]
    assert first["arrivals_ms"] == [first["ttft_ms"], pytest.approx(first["ttft_ms"] + 10, abs=0.01),
                                    first["e2e_ms"]]
    assert (bad["failure"], bad["detail"], "ttft_ms" in bad) == ("cut", "gone", False)
    assert not list(tmp_path.glob("*.partial"))


def test_a_full_disk_costs_one_file_and_leaves_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.replace

    def full(path: Path, target: Path) -> Path:
        if target.name == "result.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DrutError, match=r"cannot write .*result\.json: No space left"):
        write(result(even(9)), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"requests.csv", "summary.md"}


def test_infinity_is_written_as_a_word(tmp_path: Path) -> None:
    r = result([failed(20.0), failed(21.0), record(22.0, [0.1, 0.2], 2)])
    write(r, tmp_path)
    text = (tmp_path / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["summary"]["ttft_ms"]["p50"] == "inf"
    assert read(tmp_path / "result.json") == r


def test_arrivals_can_be_left_out() -> None:
    assert all(q.arrivals_ms is None for q in result(even(), arrivals=False).requests)


def test_the_csv_has_a_row_a_request(tmp_path: Path) -> None:
    write(result([*even(10), failed(20.0, detail='say "a,b"\nc')]), tmp_path)
    rows = list(csv.DictReader((tmp_path / "requests.csv").open(newline="")))
    assert len(rows) == 11
    assert float(rows[3]["scheduled_ms"]) == 5150
    assert (rows[10]["detail"], rows[10]["ttft_ms"]) == ('say "a,b"\nc', "")


def test_files_that_are_no_result(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with pytest.raises(DrutError, match="cannot read"):
        read(path)
    for text, words in (("{", "is not a result"), ('{"schema": "drut.bench/0"}', "of the schema 'drut.bench/0'"),
                        (json.dumps({"schema": SCHEMA}), "is not a result")):
        path.write_text(text)
        with pytest.raises(DrutError, match=words):
            read(path)
    with pytest.raises(RequestError, match="cannot make the folder"):
        make_folder(path / "x")


@pytest.mark.parametrize("more", [{"cached_tokens": 7, "input_tokens": 9},
                                  {"cached_tokens": 9, "expected_input_tokens": 9}, {}])
def test_a_bill_can_be_made_of_every_run(more: dict[str, Any]) -> None:
    """Some servers do not report prompt tokens, so the cached share is unknown."""
    price = Price(datetime.date(2026, 11, 1), "list", per_hour=1.0)
    records = [record(6.0 + i, [0.1, 0.2], 2, **(more if i else {"input_tokens": 7, "cached_tokens": 7}))
               for i in range(9)]
    cost = result(records, billing=Billing(price, 0.5)).cost
    assert cost is not None
    assert cost.run == pytest.approx(30 / 3600)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(DrutError, match="nothing was measured: the workload ended before"):
        result(even(), window=MeasureWindow(5.0, 5.0, 1.0))


def test_the_summary_reports_what_may_be_quoted() -> None:
    text = markdown(result(even(100)))
    assert "TTFT p99 (has 100, needs 299)" in text
    assert "noise floor" in text
    assert "output tokens in each second" in text
    assert "n/a" not in text.split("figure")[0]


def test_a_servers_words_do_not_become_markup() -> None:
    text = markdown(result([*even(), *[failed(20.0, detail="`x` | \x1b[31m\nred")] * 9]))
    assert "\x1b" not in text
    assert "'x' \\|" in text


def test_no_name_or_problem_steers_a_terminal() -> None:
    """A server's words are in its problems, others' in names."""
    machine = ResourceWatch()
    machine.start()
    watched = Watched(ServerSide(problems=["bad \x1b[2J line \x9b `x`"]), machine.stop())
    r = msgspec.structs.replace(result(even(), watched=watched), settings={"model": "m\x1b]0;", "url": "u\u202e"})
    text = markdown(r)
    assert "bad  [2J line   'x'" in text
    assert all(c.isprintable() for c in text.replace("\n", ""))


def test_a_plot_has_the_height_of_its_values() -> None:
    lines = columns([0, 1, 2, 4], height=4).splitlines()
    assert lines == ["4 |   █", "  |   █", "  |  ██", "0 | ███"]
    assert columns([]) == ""
    assert max(map(len, columns(range(1000), width=50).splitlines())) == 50 + len("989.5 |")
