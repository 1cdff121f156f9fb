"""Progress reports of a long fetch: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from drut.observe.bars import bar, can_show

POLL_S = 0.1
LINE_EVERY_S = 5.0

Report = Callable[[int], None]  # takes the bytes done so far


class DownloadProgress(Protocol):
    """Reports one piece of work: `with progress(title, total) as report`; `total` in bytes, None if unknown."""

    def __call__(self, title: str, total: int | None) -> AbstractContextManager[Report]: ...


@contextlib.contextmanager
def silent(title: str, total: int | None) -> Iterator[Report]:
    """Reports nothing."""
    yield lambda done: None


@contextlib.contextmanager
def show(title: str, total: int | None) -> Iterator[Report]:
    """Shows a live bar on a terminal and in a notebook, else a line at the start and every few seconds."""
    with (_bar if can_show() else _lines)(title, total) as report:
        yield report


@contextlib.contextmanager
def _bar(title: str, total: int | None) -> Iterator[Report]:
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    with bar(title, total, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as update:
        yield lambda done: update(completed=done)


@contextlib.contextmanager
def _lines(title: str, total: int | None) -> Iterator[Report]:
    size = f" ({total / 1e6:.1f} MB)" if total else ""
    print(f"{title}{size}", file=sys.stderr, flush=True)
    last = time.monotonic()

    def report(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            share = f"{100 * done // total} %" if total else f"{done / 1e6:.1f} MB"
            print(f"{title}: {share}", file=sys.stderr, flush=True)

    yield report


@contextlib.contextmanager
def watching(folder: Path, report: Report, total: int | None) -> Iterator[None]:
    """Reports the bytes under `folder` while another program writes there; never more than `total`."""
    done = threading.Event()

    def poll() -> None:
        while not done.wait(POLL_S):
            size = folder_bytes(folder)
            report(size if total is None else min(size, total))

    poller = threading.Thread(target=poll, name="drut-progress", daemon=True)
    poller.start()
    try:
        yield
    finally:
        done.set()
        poller.join()


def folder_bytes(folder: Path) -> int:
    """Returns the bytes of the files under `folder`, which may change meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
