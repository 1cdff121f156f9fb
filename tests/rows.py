"""Which rows of a product of parameters a run takes: few in which all pairs meet, others for each commit."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.engine.pairwise import Row, covering

SEED = "DRUT_ROWS"  # names the rows: a number, or `all`
FEWEST = 24  # rows of a product that is worth it


def seed() -> str:
    """What DRUT_ROWS says, else the commit that is checked out, else 0."""
    if given := os.environ.get(SEED):
        return given
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        return str(int(subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout, 16))
    except (OSError, subprocess.SubprocessError, ValueError):
        return "0"


def choose(items: Sequence[pytest.Item], which: str,
           most: int | None = None) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Items to run, and those to leave out: of each test of three parameters or more, what adds no pair; and of each
    test, what is over `most` rows, others for each commit."""
    if which == "all":
        return list(items), []
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.split("[")[0]].append(item)
    kept: set[pytest.Item] = set()
    for name, same in tests.items():
        rows = _rows(same) if len(same) > FEWEST else []
        if rows and len(rows[0]) > 2:
            same = [same[i] for i in covering(rows, int(which))]
        if most is not None and len(same) > most:
            same = Random(f"{which} {name}").sample(same, most)
        kept.update(same)
    return [item for item in items if item in kept], [item for item in items if item not in kept]


def _rows(items: Iterable[pytest.Item]) -> list[Row]:
    """The parameters of each, by identity. Names that vary together, as those of one list do, are one."""
    values = [{name: id(value) for name, value in item.callspec.params.items()}
              for item in items if hasattr(item, "callspec")]
    columns: dict[tuple[int, ...], str] = {}
    for name in values[0] if values else ():
        seen: dict[int, int] = {}
        columns.setdefault(tuple(seen.setdefault(row[name], len(seen)) for row in values), name)
    return [{name: row[name] for name in columns.values()} for row in values]
