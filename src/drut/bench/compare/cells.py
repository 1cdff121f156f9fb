"""Parses cells: a workload and its load."""

from __future__ import annotations

import math
import re
from zlib import crc32

from drut.bench.compare.names import check_names
from drut.bench.compare.schema import Cell
from drut.bench.workloads.registry import parse as parse_workload
from drut.errors import RequestError

PRESETS = {
    "chat": "synthetic:input=128,output=64",
    "shared-prefix": "shared-prefix:groups=4,prefix=512,suffix=64,output=64",
    "long-prompt": "synthetic:input=1024,output=32",
}
"""The preset cells. Lengths are fixed: with drawn lengths, engines of different speed would get different requests."""

_CELL = re.compile(r"(?P<workload>.+?)@(?:rate=(?P<rate>[^,@]+)|(?P<users>[0-9]{1,6}))(?:,|$)")


def parse_cells(texts: list[str]) -> list[Cell]:
    """Parses `WORKLOAD@USERS` or `WORKLOAD@rate=SESSIONS_PER_SECOND`, one or several separated by commas in each text.
    A name of PRESETS stands for the preset. Raises RequestError."""
    cells = [cell for text in texts for cell in _split(text)]
    check_names([cell.name for cell in cells], "no cell was given, such as chat@8", "the cell {} is given twice")
    return cells


def seed_of(seed: int, number: int, cell: str, again: bool = False) -> int:
    """Returns the seed of the requests and the schedule of a cell in a round: the same for all engines, and different
    in each round and cell and for a turn taken `again`. So no engine's cache holds a prompt of an earlier turn, unless
    the workload itself repeats it."""
    return seed << 42 | number << 32 | crc32(f"{cell} again".encode() if again else cell.encode())


def _split(text: str) -> list[Cell]:
    at, cells = 0, []
    for found in _CELL.finditer(text):
        if found.start() != at:
            break
        at = found.end()
        cells.append(_cell(found[0].rstrip(","), found["workload"].strip(), found["rate"], found["users"]))
    if at != len(text) or not text:
        raise RequestError(f"cell {text[at:][:80]!r}: expected WORKLOAD@USERS or WORKLOAD@rate=R, such as chat@8")
    return cells


def _cell(name: str, workload: str, rate: str | None, users: str | None) -> Cell:
    workload = PRESETS.get(workload, workload)
    parse_workload(workload)
    if rate is None:
        concurrency = int(users or 0)
        if not concurrency:
            raise RequestError(f"cell {name!r}: there must be at least one user")
        return Cell(name.strip(), workload, concurrency=concurrency)
    try:
        value = float(rate)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise RequestError(f"cell {name!r}: the rate must be a positive number of sessions a second")
    return Cell(name.strip(), workload, rate=value)
