"""Ctrl-C as a wish that is looked at between steps, so that no step of the engine is cut in half."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interrupt:
    """Whether Ctrl-C was pressed."""

    wanted: bool = False


@contextlib.contextmanager
def deferred() -> Iterator[Interrupt]:
    """Inside, Ctrl-C only sets `wanted`. For the main thread."""
    interrupt = Interrupt()

    def on_signal(number: int, frame: FrameType | None) -> None:
        interrupt.wanted = True

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
