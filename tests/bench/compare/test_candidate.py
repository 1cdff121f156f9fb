from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from drut.bench.compare.candidate import Candidate
from drut.bench.compare.schema import Contestant
from drut.bench.engines.engine import CannotRunError, Launch
from drut.bench.engines.process import Memory
from tests.bench.compare.made import FAST, comparing, script


@pytest.fixture
def candidate(tmp_path: Path) -> Candidate:
    return comparing(tmp_path, [script(tmp_path, "a", FAST)]).candidates[0]


def _weighed(candidate: Candidate, memory: Memory) -> Contestant:
    candidate.running = SimpleNamespace(memory=lambda: memory)  # type: ignore[assignment]
    candidate.weigh()
    return candidate.contestant()


def test_what_the_processes_of_an_engine_share_counts_once(candidate: Candidate) -> None:
    first = _weighed(candidate, Memory(3900.0, 3950.0, 3500.0))
    assert (first.ready_mb, first.peak_mb) == (3500.0, 3550.0)
    later = _weighed(candidate, Memory(3600.0, 3950.0, 3300.0))
    assert (later.ready_mb, later.peak_mb) == (3500.0, 3650.0)


def test_without_pss_it_is_the_resident_memory(candidate: Candidate) -> None:
    found = _weighed(candidate, Memory(100.0, 120.0))
    assert (found.ready_mb, found.peak_mb) == (100.0, 120.0)


def test_versions_of_all_earlier_parts_stay(candidate: Candidate) -> None:
    def now(version: str, before: Contestant | None) -> Contestant:
        candidate.launch = Launch("http://a", "a", versions={"x": version})
        candidate._starts.append(1.0)
        return candidate.contestant(before)

    first = now("1", None)
    third = now("3", now("2", now("1", first)))
    assert first.earlier == []
    assert (third.earlier, third.versions) == ([{"x": "1"}, {"x": "2"}], {"x": "3"})


def test_versions_outlast_a_part_in_which_it_did_not_start(candidate: Candidate) -> None:
    first = Contestant("a", "mock", "A", "measured", versions={"x": "1"})
    candidate.fail(CannotRunError("no file"))
    second = candidate.contestant(first)
    assert (second.versions, second.earlier) == ({}, [{"x": "1"}])
    assert candidate.contestant(second).earlier == [{"x": "1"}]


def test_the_most_of_an_earlier_part_stays(candidate: Candidate) -> None:
    before = Contestant("a", "mock", "A", "measured", peak_mb=500.0)
    candidate._starts.append(1.0)
    _weighed(candidate, Memory(100.0, 120.0))
    assert candidate.contestant(before).peak_mb == 500.0
    _weighed(candidate, Memory(600.0, 700.0))
    assert candidate.contestant(before).peak_mb == 700.0
