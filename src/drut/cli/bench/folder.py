"""The folder of a command's files: the one that is given, or a new one named after the day and the work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from drut.errors import DrutError, RequestError

if TYPE_CHECKING:
    from drut.bench.result.schema import Result

RUNS = Path("runs")
MAX_LOOKS, MAX_BYTES = 4, 64 << 20  # earlier runs that are read, and their size


@contextmanager
def result_folder(given: str | None, work: str) -> Iterator[Path]:
    """Yields the folder, which exists; one that stays empty is removed. `work` names a new one, whose name no other
    run has. Raises RequestError if it cannot be made."""
    from drut.bench.files import make_folder

    if given is None:
        folder = _new(work)
    else:
        folder = Path(given)
        make_folder(folder)
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def name_of(workload: str) -> str:
    """Returns a workload's name for a folder: without options, or the name of the user's file."""
    kind, _, options = workload.partition(":")
    name = Path(options.partition("path=")[2]).stem if kind == "jsonl" else kind
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or kind


def latest_comparable(folder: Path, work: str, result: Result) -> Path | None:
    """Returns the latest other run in the same place with which `result` can be compared; None if there is none. `work`
    is part of its folder's name."""
    from drut.bench.diff.comparable import differences
    from drut.bench.report.files import read

    found = {path: stat for path in folder.parent.glob(f"*{work}*/result.json") if path.parent != folder
             and (stat := path.stat()).st_size < MAX_BYTES}
    for path in sorted(found, key=lambda path: found[path].st_mtime, reverse=True)[:MAX_LOOKS]:
        with suppress(DrutError):
            if not differences(read(path), result).reasons:
                return path.parent
    return None


def _new(work: str) -> Path:
    name = f"{date.today().isoformat()}-{work}"
    try:
        RUNS.mkdir(exist_ok=True)
        for number in count(1):
            folder = RUNS / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        raise RequestError(f"cannot make a folder in {RUNS.absolute()}: {error.strerror}; give --out DIR") from None
    raise AssertionError  # the loop has no end
