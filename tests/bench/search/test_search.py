"""Whole searches, on servers in virtual time whose truth comes from simulations of their own."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drut.bench.metrics.request import Slo
from drut.bench.render.section import Table
from drut.bench.report.estimates import ANSWERS
from drut.bench.report.sections.search import section
from drut.bench.search import saturation
from drut.bench.search.files import read, save
from drut.bench.search.markdown import markdown
from drut.bench.search.schema import Search, SearchAnswer
from drut.bench.search.search import About, Searcher, Wanted
from drut.bench.search.trial import SearchTrial, TrialAsk
from drut.errors import DrutError, RequestError
from tests.bench.search.queues import Server, constant, lognormal, uniform
from tests.bench.search.virtual import Virtual, search

EIGHT = Server(8, constant(0.01), constant(0.04), constant=True)
LIMIT_S = 0.03


def within(answers: list[SearchAnswer], truth: float, share: float = 0.05) -> float:
    return float(np.mean([a.value is not None and abs(a.value / truth - 1) <= share for a in answers]))


def test_the_simulation_is_the_queue_that_theory_knows() -> None:
    """M/D/1 by Pollaczek and Khinchine; the two ways to simulate it agree."""
    server = Server(1, constant(0.01), constant(0.0), constant=True)
    rng = np.random.default_rng(1)
    at = np.cumsum(rng.exponential(1 / 70, 300_000))
    wait, _, _ = server.serve(at, rng)
    assert wait[1000:].mean() == pytest.approx(0.01 * 0.7 / (2 * 0.3), rel=0.05)
    four = Server(4, constant(0.01), constant(0.04), constant=True)
    slow = Server(4, constant(0.01), constant(0.04))
    assert four.serve(at[:3000], rng)[0] == pytest.approx(slow.serve(at[:3000], rng)[0], abs=1e-9)


def test_a_search_finds_what_is_true_of_a_server() -> None:
    found = search(EIGHT, LIMIT_S, seed=1)
    truth = EIGHT.slo_rate(LIMIT_S, 0.95)
    assert found.saturation.value == pytest.approx(160, rel=0.02)
    assert found.slo_rate.value == pytest.approx(truth, rel=0.1)
    assert found.slo_rate.low is not None
    assert found.slo_rate.low < truth * 1.05
    assert {p.phase for p in found.points} >= {"curve", "saturate", "verify"}
    assert found.ended == ""


def test_the_file_states_how_many_requests_a_session_has() -> None:
    virtual = Virtual(EIGHT, None, 0)

    def twice(ask: TrialAsk) -> SearchTrial:
        return dataclasses.replace(virtual.measure(ask), turns=2.0)

    for measure, turns in ((virtual.measure, 1.0), (twice, 2.0)):
        found = Searcher(measure=measure, wanted=Wanted(30.0), about=About("virtual"), clock=virtual.clock,
                         save=lambda _: None, report=lambda _: None).run()
        assert found.turns == turns


@pytest.mark.slow
@pytest.mark.parametrize(("server", "limit_s", "seeds"), [
    (EIGHT, LIMIT_S, 60),
    (Server(1, constant(0.005), constant(0.005), constant=True), 0.055, 40),
    (Server(4, uniform(0.005, 0.035), constant(0.03)), 0.06, 25),
    (Server(4, constant(0.01), lognormal(0.03, 0.6)), 0.06, 25),
], ids=["M/D/8", "M/D/1", "TTFT by the prompt", "lognormal service"])
def test_most_searches_are_within_5_percent(server: Server, limit_s: float, seeds: int) -> None:
    """The shares asked for are below those seen by what so many seeds may miss by chance."""
    n = 1_500_000 if server.constant else 200_000
    truth, knee, most = server.slo_rate(limit_s, 0.95, n), server.knee(n), server.saturation()
    found = [search(server, limit_s, seed) for seed in range(seeds)]
    shares = {"saturation": within([f.saturation for f in found], most), "knee": within([f.knee for f in found], knee),
              "slo": within([f.slo_rate for f in found], truth),
              "claimed too much": float(np.mean([(f.slo_rate.low or 0.0) > truth for f in found]))}
    print(shares, truth, knee, most)
    assert shares["saturation"] >= 0.98
    assert shares["knee"] >= 0.8
    assert shares["slo"] >= (0.8 if server.constant else 0.6)
    assert shares["claimed too much"] <= 0.15


class Broken(Virtual):
    """Runs that go wrong from the `after`-th on."""

    def __init__(self, after: int, wrong: Callable[[TrialAsk, SearchTrial], SearchTrial]) -> None:
        super().__init__(EIGHT, LIMIT_S, 0)
        self.after, self.wrong, self.runs = after, wrong, 0

    def measure(self, ask: TrialAsk) -> SearchTrial:
        self.runs += 1
        found = super().measure(ask)
        return found if self.runs <= self.after else self.wrong(ask, found)


def searched(server: Broken, folder: Path | None = None, budget_s: float = 300.0) -> Search:
    lines: list[str] = []
    keep = (lambda found: save(found, folder)) if folder else (lambda found: None)
    about = About("mock", {"slo": "ttft=30", "attain": 0.95})
    return Searcher(measure=server.measure, wanted=Wanted(budget_s, Slo(ttft=LIMIT_S)), about=about, clock=server.clock,
                    save=keep, report=lines.append).run()


def dead(ask: TrialAsk, trial: SearchTrial) -> SearchTrial:
    raise DrutError("cannot connect to it")


def hung(ask: TrialAsk, trial: SearchTrial) -> SearchTrial:
    return SearchTrial(ask, np.full(9, math.inf), np.zeros(9), np.zeros(10), reasons=["no request finished"])


def stopped(ask: TrialAsk, trial: SearchTrial) -> SearchTrial:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("wrong", "words"), [
    (dead, "the server was lost: cannot connect"), (hung, "and then one at a time too"), (stopped, "interrupted")])
def test_what_ends_a_search_leaves_what_is_known(tmp_path: Path, wrong: Callable[[TrialAsk, SearchTrial], SearchTrial],
                                                 words: str,
                                                 ) -> None:
    found = searched(Broken(9, wrong), tmp_path)
    assert words in found.ended
    assert found.saturation.value == pytest.approx(160, rel=0.02)
    assert read(tmp_path / "search.json") == found
    assert words in (tmp_path / "summary.md").read_text()
    assert len((tmp_path / "search.csv").read_text().splitlines()) == len(found.points) + 1 == 9


def test_a_server_that_is_never_there_is_an_error() -> None:
    with pytest.raises(DrutError, match="cannot connect"):
        searched(Broken(0, dead))
    with pytest.raises(DrutError, match="the pilot failed: no request finished"):
        searched(Broken(0, hung))
    with pytest.raises(KeyboardInterrupt):
        searched(Broken(1, stopped))


def test_void_runs_are_made_once_more_and_do_not_count() -> None:
    def late(ask: TrialAsk, trial: SearchTrial) -> SearchTrial:
        return SearchTrial(ask, trial.e2e, trial.good, trial.served, valid=False, reasons=["the client sent late"])

    found = searched(Broken(9, late))
    void = [p for p in found.points if not p.valid]
    assert len(void) >= 2
    assert (void[0].rate, void[0].concurrency) == (void[1].rate, void[1].concurrency)
    assert found.slo_rate.value is None
    assert any("void through the client's fault" in note for note in found.notes)


def test_a_machine_that_others_use_is_reported() -> None:
    def busy(cpus: float) -> str:
        return str(searched(Broken(0, lambda _, trial: replace(trial, others_cpus=cpus)), budget_s=60.0).notes)

    assert "other processes took 1.5 CPUs" in busy(1.5)
    assert "other processes" not in busy(0.1)


def test_the_file_is_whole_after_each_run(tmp_path: Path) -> None:
    counts = []

    class Reader(Broken):
        def measure(self, ask: TrialAsk) -> SearchTrial:
            if (tmp_path / "search.json").exists():
                now = read(tmp_path / "search.json")
                assert now.ended == "running"
                counts.append(len(now.points))
            return super().measure(ask)

    found = searched(Reader(99, hung), tmp_path)
    assert counts == list(range(1, len(found.points)))
    assert json.loads((tmp_path / "search.json").read_text())["schema"] == "drut.search/1"


def test_the_summary_states_what_may_be_promised() -> None:
    found = searched(Broken(99, hung), budget_s=600.0)
    text = markdown(found)
    assert found.slo_rate.low is not None
    assert "ttft=30 is met by 95.0% of requests or more, at 95 % confidence" in text
    assert "Against concurrency" in text
    assert "Against rate" in text


@pytest.mark.parametrize(("more", "words"), [
    ({"budget_s": 1.0}, "--budget"), ({"attain": 1.0}, "--attain"), ({"tolerance": 0.0}, "--tolerance"),
    ({"users": (4, 2)}, "--users"), ({"users": ()}, "--users")])
def test_what_makes_no_sense_is_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        Wanted(**{"budget_s": 60.0, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["{", '{"schema": "drut.search/1"}'])
def test_a_file_that_is_no_search(tmp_path: Path, text: str) -> None:
    path = tmp_path / "search.json"
    path.write_text(text)
    with pytest.raises(DrutError, match="is not a search"):
        read(path)
    with pytest.raises(DrutError, match="cannot read"):
        read(tmp_path / "nothing")


def _gaps(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.exp(rng.normal(np.log(0.01), 0.5, (n, 15))).sum(1)


UNEVEN = Server(8, constant(0.0264), _gaps)  # 15 gaps between tokens, each lognormal


@pytest.mark.parametrize(("seed", "budget_s"), [(0, 180.0), (1, 180.0), (2, 300.0)])
def test_a_limit_that_holds_until_near_saturation_ends_with_a_result(seed: int, budget_s: float) -> None:
    """Nothing fails until the last stretch, and then something does."""
    found = search(UNEVEN, 0.5, seed, budget_s).slo_rate
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    assert found.low <= 37.6 <= found.high * 1.02  # UNEVEN.slo_rate(0.5, 0.95, 100_000)


@pytest.mark.parametrize(("server", "limit_s", "budget_s", "why"), [
    (UNEVEN, 0.5, 30.0, "no rate was run long enough"),
    (UNEVEN, 0.01, 60.0, "of requests held the limits"),  # nothing holds, at any rate
    (Server(1, constant(2.0), constant(8.0)), 3.0, 180.0, "no valid run at a rate"),
])
def test_without_a_result_no_number_stands_for_one(tmp_path: Path, server: Server, limit_s: float, budget_s: float,
                                                   why: str) -> None:
    found = search(server, limit_s, 0, budget_s)
    assert found.slo_rate.value is None
    assert why in found.slo_rate.why
    for answer, name in ((found.slo_rate, "holds the limits"), (found.saturation, "saturation"), (found.knee, "knee")):
        row = next(line for line in markdown(found).splitlines() if line.startswith(f"| {name}"))
        assert ("not found" in row) == (answer.value is None)
        assert answer.value is not None or answer.why
    save(found, tmp_path)
    assert json.loads((tmp_path / "search.json").read_text())["slo_rate"]["value"] is None
    assert "is met by" not in markdown(found)
    table = next(part for part in section(found).parts if isinstance(part, Table))
    assert [row[1] for row in table.rows if row[0].startswith(ANSWERS["slo_rate"])] == ["not found"]


def test_a_saturation_is_told_only_where_fresh_runs_confirm_it() -> None:
    """The most of several noisy figures is too high, and nothing served is no saturation of 0."""
    ask = TrialAsk("curve", 1.0, 10.0, 5.0, concurrency=1)
    flat = [SearchTrial(replace(ask, concurrency=users), np.ones(9), None, np.full(10, 4.0)) for users in (1, 2, 4)]
    unconfirmed = saturation.saturation(flat)
    assert (unconfirmed.value, unconfirmed.low) == (None, 4.0)
    assert "no fresh run confirmed" in unconfirmed.why
    nothing = saturation.saturation([SearchTrial(ask, np.ones(9), None, np.zeros(10))])
    assert (nothing.value, nothing.why) == (None, "no request was served in a closed loop")
    assert saturation.ceiling([SearchTrial(ask, np.ones(9), None, np.zeros(10))]) is None
