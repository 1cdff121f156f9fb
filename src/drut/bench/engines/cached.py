"""Reads weights into the page cache before an engine starts, so that its start time does not depend on earlier
reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

from drut.bench.engines.engine import EngineFiles, Launch
from drut.bench.engines.files import LAYOUTS

_AT_ONCE = 1 << 22
MAX_SHARE = 0.5  # share of the available memory


def read_ahead(launch: Launch, files: EngineFiles) -> int:
    """Reads the model files that the engine uses; returns their bytes. None if they are too large to stay in memory."""
    layouts = [path for name in LAYOUTS if (path := getattr(files, name)) is not None]
    paths = list(_files(path for path in layouts if str(path) in launch.argv))
    size = sum(path.stat().st_size for path in paths)
    if size > MAX_SHARE * psutil.virtual_memory().available:
        return 0
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(_AT_ONCE):
                pass
    return size


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        yield from sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
