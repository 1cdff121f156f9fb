"""Ctrl-C as a flag that is checked between steps, so that it never interrupts a step of the engine."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interrupt:
    """The flag: whether Ctrl-C was pressed."""

    wanted: bool = False


@contextlib.contextmanager
def deferred() -> Iterator[Interrupt]:
    """Makes Ctrl-C only set `wanted` inside the context. Threads: only for the main thread."""
    interrupt = Interrupt()

    def on_signal(number: int, frame: FrameType | None) -> None:
        interrupt.wanted = True

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
