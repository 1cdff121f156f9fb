"""The request log: one JSON line per request, without its text."""

from __future__ import annotations

import queue
import threading
import time
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec

from drut.server.admission.request_record import NullObserver, RequestRecord

MAX_QUEUED = 10_000  # lines: a reader that has stopped must not exhaust the server's memory


class RequestLog(NullObserver):
    """An observer that writes lines in its own thread, so that a full pipe or disk delays no request.

    Lines that cannot be written are dropped, and the next line reports their number.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """`stream` must be unbuffered or flush on each write of a line."""
        self._stream = stream
        self._lines: queue.Queue[bytes | None] = queue.Queue(MAX_QUEUED)
        # Lines lost: `_overflowed` is written by the event loop alone, the other two by the log's thread alone.
        self._overflowed = self._failed = self._reported = 0
        self._thread = threading.Thread(target=self._write, name="drut-log", daemon=True)
        self._thread.start()

    def observe(self, record: RequestRecord) -> None:
        """Writes the line of a request that has ended."""
        try:
            self._lines.put_nowait(msgspec.json.encode(entry(record)) + b"\n")
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
                    self._stream.write(msgspec.json.encode({"log_lines_dropped": lost - self._reported}) + b"\n")
                    self._reported = lost
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):  # a full disk, a closed pipe
                self._failed += 1


def entry(record: RequestRecord) -> dict[str, object]:
    """Returns a record as plain data: seconds to the microsecond, and the wall time of its end."""
    def seconds(value: float | None) -> float | None:
        return None if value is None else round(value, 6)

    ended = time.time() - (time.monotonic() - (record.finished or time.monotonic()))
    return {
        "time": datetime.fromtimestamp(ended, UTC).isoformat(timespec="milliseconds"), "id": record.id,
        "key": record.key, "finish_reason": record.finish_reason, "error": record.error or None,
        "prompt_tokens": record.prompt_tokens, "cached_tokens": record.cached_tokens,
        "completion_tokens": record.completion_tokens, "choices": record.choices, "priority": record.priority,
        "queue_s": seconds(record.queue_s), "ttft_s": seconds(record.ttft_s), "e2e_s": seconds(record.e2e_s),
        "waited_for": record.waited_for or None, "preemptions": record.preemptions, "steps": record.steps,
        "ignored": list(record.ignored) or None}
