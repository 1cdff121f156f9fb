"""The request log: one JSON line per request, without its text."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec

from drut.server.admission.request_record import NullObserver, RequestRecord
from drut.server.life.lines import LineWriter


class RequestLog(NullObserver):
    """An observer that writes the line of each request that has ended."""

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = LineWriter(stream, lambda lost: msgspec.json.encode({"log_lines_dropped": lost}) + b"\n")

    def observe(self, record: RequestRecord) -> None:
        """Writes the line of a request that has ended."""
        self._lines.put(msgspec.json.encode(entry(record)) + b"\n")

    def close(self, patience_s: float = 1.0) -> None:
        """Writes the remaining lines, for at most `patience_s` seconds."""
        self._lines.close(patience_s)


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
