"""Writes lines in a thread of its own, so that a full pipe or disk delays no request."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import BinaryIO

MAX_QUEUED = 10_000  # lines: a reader that has stopped must not exhaust the server's memory


class LineWriter:
    """Lines that cannot be written are dropped; the next line that can is preceded by `lost(number)`."""

    def __init__(self, stream: BinaryIO, lost: Callable[[int], bytes]) -> None:
        """`stream` must be unbuffered or flush on each write of a line."""
        self._stream, self._lost = stream, lost
        self._lines: queue.Queue[bytes | None] = queue.Queue(MAX_QUEUED)
        # Lines lost: `_overflowed` is written by the event loop alone, the other two by the thread alone.
        self._overflowed = self._failed = self._reported = 0
        self._thread = threading.Thread(target=self._write, name="drut-log", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Writes a line, with its end."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._overflowed += 1

    def close(self, patience_s: float = 1.0) -> None:
        """Writes the remaining lines, for at most `patience_s` seconds."""
        try:
            self._lines.put(None, timeout=patience_s)
        except queue.Full:
            return
        self._thread.join(patience_s)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                lost = self._overflowed + self._failed
                if lost > self._reported:
                    self._stream.write(self._lost(lost - self._reported))
                    self._reported = lost
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):  # a full disk, a closed pipe
                self._failed += 1
