"""The top of a run's section, its ITL, and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from drut.bench.render.markdown import report
from drut.bench.render.page.render import page
from drut.bench.render.section import Facts, Note, Plot, ReportGroup, Section, Table, Tile, Tiles
from drut.bench.report.assemble import section_of, sections
from drut.bench.report.documents import DocumentSource, find
from drut.bench.report.files import write
from drut.bench.report.sections import gaps, headline
from drut.bench.result.schema import Result
from drut.bench.stats.distribution import Distribution
from drut.errors import DrutError
from tests.bench.report import samples


def tiles_of(section: Section) -> dict[str, Tile]:
    (found,) = [part for part in section.parts if isinstance(part, Tiles)]
    return {tile.title: tile for tile in found.tiles}


def a_run(**settings: Any) -> Result:
    return samples.result(seconds=20.0, **settings)


def test_the_top_has_the_circumstances_and_the_figures() -> None:
    section = section_of(a_run(slo="ttft=200", arrivals="poisson"))
    facts = next(dict(part.rows) for part in section.parts if isinstance(part, Facts))
    assert facts["Workload"] == "synthetic"
    assert facts["Load"] == "10 sessions/s, poisson arrivals"
    assert facts["Client's machine"] == "Example CPU, 2 CPUs; drut 0.1.0"
    assert facts["Date"] == "2026-11-30 08:00:00 UTC"
    assert list(tiles_of(section)) == ["Throughput", "Goodput", "TTFT, median", "TPOT, median", "ITL, median",
                                       "E2E, median"]
    assert isinstance(section.parts[0], Facts)
    assert isinstance(section.parts[1], Tiles)


@pytest.mark.parametrize(("slo", "mark"), [("ttft=150", "pass"), ("ttft=80", "fail"), (None, "")])
def test_a_limit_is_marked_by_the_share_of_requests_that_keep_it(slo: str | None, mark: str) -> None:
    run = a_run(slo=slo)
    tile = tiles_of(section_of(run))["TTFT, median"]
    assert tile.mark == mark
    if slo is not None:
        most = float(slo.partition("=")[2])
        ok = sum(q.ttft_ms is not None and q.ttft_ms <= most for q in run.requests if q.measured)
        assert tile.limit == f"{ok / run.summary.requests:.1%} ≤ {headline.time_text(most)}"
        assert ("✓" if mark == "pass" else "✗") in page([section_of(run)])


def test_failed_requests_keep_no_limit() -> None:
    (limit,) = headline.limits(samples.result(seconds=20.0, lost=50, slo="e2e=60s"))
    assert limit.kept == pytest.approx(200 / 250)
    assert limit.mark == "fail"


def test_a_single_token_has_no_tpot_to_keep() -> None:
    run = a_run(slo="tpot=1")
    one = [msgspec.structs.replace(q, output_tokens=1, tpot_ms=None) for q in run.requests]
    (limit,) = headline.limits(msgspec.structs.replace(run, requests=one))
    assert limit.kept == pytest.approx(200 / 202)


def test_limits_are_lines_in_the_distributions() -> None:
    (found,) = [part for part in section_of(a_run(slo="ttft=80,tpot=13")).parts
                if isinstance(part, ReportGroup) and part.title == "Distributions"]
    marks = {plot.caption: [(m.at, m.name) for m in plot.marks] for plot in found.plots if isinstance(plot, Plot)}
    assert marks == {"TTFT": [(80.0, "SLO 80 ms")], "TPOT": [(13.0, "SLO 13 ms")], "ITL": [], "E2E": []}
    made = page([section_of(a_run(slo="ttft=80,tpot=13"))])
    assert made.count('<line class="limit"') == 2
    assert ">SLO 13 ms</text>" in made


def test_the_gaps_of_the_file_are_those_of_the_summary() -> None:
    run = samples.result(seconds=20.0, lost=0)
    found = Distribution.of(gaps.of_run(run))
    for name in ("n", "p50", "p90", "p95", "p99", "mean"):
        assert getattr(found, name) == pytest.approx(getattr(run.summary.itl_ms, name), rel=1e-3)


def test_several_tokens_at_once_and_reported_numbers() -> None:
    request = next(q for q in samples.result(seconds=2.0).requests if q.measured)
    request = msgspec.structs.replace(request, arrivals_ms=[10.0, 30.0, 60.0], arrival_chars=[1, 1, 1],
                                      arrival_reported=[2, 1, 3], output_tokens=6)
    values, at = gaps.gaps(request)
    assert values.tolist() == [0.0, 20.0, 10.0, 10.0, 10.0]
    assert (at - request.scheduled_ms).tolist() == [10.0, 30.0, 60.0, 60.0, 60.0]
    assert gaps.gaps(msgspec.structs.replace(request, arrivals_ms=None))[0].tolist() == []


def test_tokens_that_arrive_together_do_not_stretch_the_axis() -> None:
    run = samples.result(seconds=12.0, lost=0)
    together = [msgspec.structs.replace(q, arrivals_ms=[(q.arrivals_ms or [])[0], *(q.arrivals_ms or [])[:-1]])
                for q in run.requests]
    found = gaps.drawn(msgspec.structs.replace(run, requests=together))
    assert len(found) == len(gaps.of_run(run))
    assert min(found) == pytest.approx(np.median(found) / 100, rel=0.1)
    assert gaps.drawn(msgspec.structs.replace(run, requests=[])) == []


def test_itl_by_second_shows_when_a_stream_stood_still() -> None:
    run = samples.result(seconds=12.0, lost=0)
    stalled = [msgspec.structs.replace(q, arrivals_ms=[*(q.arrivals_ms or [])[:-1], (q.arrivals_ms or [])[-1] + 900.0])
               if 10_000 <= q.scheduled_ms < 10_450 else q for q in run.requests]
    plot = gaps.by_second({"x": msgspec.structs.replace(run, requests=stalled)})
    assert plot is not None
    median, p99 = (dict(line.points) for line in plot.lines)
    assert max(p99, key=lambda second: p99[second]) == 6.5  # 5 s of warm-up, then 6
    assert max(median.values()) < 30


def a_sweep() -> list[DocumentSource]:
    return [DocumentSource(f"rate-{rate}", Path(), samples.result(
        seconds=12.0, rate=float(rate), slow=1 + rate / 4, lost=0, slo="ttft=200")) for rate in (8, 1, 2)]


def test_runs_of_several_loads_are_a_sweep() -> None:
    first = sections(a_sweep())[0]
    assert first.title == "Sweep of tiny at http://127.0.0.1:8000"
    (curves,) = [part for part in first.parts if isinstance(part, ReportGroup) and part.title.startswith("Throughput")]
    ttft = curves.plots[0]
    assert isinstance(ttft, Plot)
    assert [list(line.names) for line in ttft.lines] == [["1 /s", "2 /s", "8 /s"], []]
    assert [(m.at, m.axis) for m in ttft.marks] == [(200.0, "y")]
    assert [y for _, y in ttft.lines[0].points] == sorted(y for _, y in ttft.lines[0].points)
    tile = tiles_of(first)["Highest load within the limits"]
    assert (tile.value, tile.mark) == ("2 /s", "pass")
    assert "### All loads" in report([first])


def test_all_requests_at_once_are_the_last_load_of_a_sweep() -> None:
    runs = [*a_sweep(), DocumentSource("inf", Path(), samples.result(seconds=12.0, rate="inf", slow=9.0))]
    first = sections(runs)[0]
    (loads,) = [part for part in first.parts if isinstance(part, Table) and part.caption == "All loads"]
    assert [row[0] for row in loads.rows] == ["1 /s", "2 /s", "8 /s", "all at once"]
    (curves,) = [part for part in first.parts if isinstance(part, ReportGroup) and part.title.startswith("Throughput")]
    requests = curves.plots[-1]
    assert isinstance(requests, Plot)
    assert [x for x, _ in requests.lines[0].points] == [1, 2, 8]


@pytest.mark.parametrize("change", [{"rate": 2.0}, {"workload": "chat"}, {"rate": None, "concurrency": 4}])
def test_other_runs_are_only_put_beside_each_other(change: dict[str, Any]) -> None:
    runs = a_sweep()[1:]
    last = runs[0].document
    assert isinstance(last, Result)
    other = msgspec.structs.replace(last, settings={**last.settings, **change})
    found = sections([runs[1], DocumentSource("other", Path(), other)])
    assert found[0].title == "Several runs"
    assert any(isinstance(part, Note) and "not interleaved" in part.text for part in found[0].parts)


def test_the_folder_of_a_sweep_is_read_as_its_runs(tmp_path: Path) -> None:
    for name in ("rate-1", "rate-2"):
        (tmp_path / name).mkdir()
        write(samples.result(seconds=12.0, rate=float(name[-1])), tmp_path / name)
    assert [source.label for source in find([tmp_path])] == ["rate-1", "rate-2"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DrutError, match="nor folders with"):
        find([tmp_path / "empty"])


def test_the_reasons_of_a_warning_are_folded() -> None:
    run = msgspec.structs.replace(a_run(), validity=msgspec.structs.replace(a_run().validity, valid=False,
                                                                            reasons=["the client sent late"]))
    made = page([section_of(run)])
    assert '<details class="note warning"><summary>Void. None of these figures may be quoted:</summary>' in made
    assert np.all(np.diff([made.index(text) for text in ("Void.", "the client sent late", "Throughput")]) > 0)
