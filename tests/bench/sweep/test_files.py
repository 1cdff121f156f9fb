"""The files of a sweep."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from drut.bench.metrics.request import Slo
from drut.bench.result.figures import FIGURES
from drut.bench.sweep.files import NAME, read, save
from drut.bench.sweep.schema import SCHEMA, Sweep, SweepPoint
from drut.errors import DrutError


def point(*, users: int | None = None, rate: float | None = None) -> SweepPoint:
    return SweepPoint(rate, users, f"users-{users}", True, [], "steady", 20, 0,
                      {"ttft_ms_p50": 12.5, "itl_ms_p99": "inf"})


def test_a_sweep_is_read_as_it_was_written(tmp_path: Path) -> None:
    sweep = Sweep(SCHEMA, "users", {"model": "m"}, {"cpus": 2}, [point(users=1), point(users=4)], Slo(ttft=0.5))
    save(sweep, tmp_path)
    assert read(tmp_path / NAME) == sweep
    head, *rows = csv.reader((tmp_path / "summary.csv").open())
    assert len(rows) == 2
    assert head == ["rate", "users", "folder", "valid", "steady", "requests", "failed", *FIGURES, "reasons"]
    assert [(row[head.index("users")], row[head.index("ttft_ms_p50")], row[head.index("itl_ms_p99")])
            for row in rows] == [("1", "12.5", "inf"), ("4", "12.5", "inf")]


def test_another_summary_is_no_sweep(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"schema": "drut.bench/1"}')
    with pytest.raises(DrutError, match=r"of the schema 'drut\.bench/1', not 'drut\.sweep/1'"):
        read(tmp_path / NAME)


@pytest.mark.parametrize(("one", "words"), [
    (point(users=1), "1 user"), (point(users=4), "4 users"), (point(rate=0.5), "0.5/s"),
    (SweepPoint("inf", None, "", True, [], "", 1, 0, {}), "all at once")])
def test_a_load_in_words(one: SweepPoint, words: str) -> None:
    assert one.load == words
