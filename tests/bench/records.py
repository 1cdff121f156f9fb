"""Records made by hand, for figures that are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drut.bench.load.record import LoadRecord


def record(scheduled: float = 0.0, arrivals: Sequence[float] = (), tokens: int | None = None,
           **more: Any) -> LoadRecord:
    """A streamed answer that is well: arrivals are seconds after `scheduled`, as is `sent`; each has 4 characters."""
    times = [float(scheduled + t) for t in arrivals]
    fields: dict[str, Any] = {
        "session": "s", "turn": 0, "counted": True, "sent": scheduled, "streamed": True, "status": 200,
        "arrivals": times, "chars": [4] * len(times), "reported": [-1] * len(times), "output_tokens": tokens,
        "ended": times[-1] if times else scheduled, "finish_reason": "length", **more}
    return LoadRecord(scheduled=scheduled, **fields)


def failed(scheduled: float = 0.0, failure: str = "http", **more: Any) -> LoadRecord:
    return record(scheduled, failure=failure, **{"ended": scheduled + 0.1, **more})
