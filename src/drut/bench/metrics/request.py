"""The figures of one request, in seconds. A figure that cannot be measured is None, never 0."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from drut.bench.load.record import LoadRecord
from drut.bench.metrics.tokens import CountTokens, carried, output_tokens
from drut.bench.stats.distribution import Floats
from drut.errors import RequestError


class Timing(msgspec.Struct, frozen=True):
    """The times of a request that did not fail. `itl` has one entry for each token after the first; its mean is
    `tpot`."""

    ok: bool
    tokens: int | None = None
    ttft: float | None = None
    ttft_sent: float | None = None
    e2e: float | None = None
    tpot: float | None = None
    itl: Floats = msgspec.field(default_factory=lambda: np.zeros(0))


def timing(record: LoadRecord, count: CountTokens | None = None) -> Timing:
    """Computes the times of one record. `count` is the target's tokenizer, for responses without a token count from the
    server."""
    if record.failure is not None or not record.arrivals or record.sent is None:
        return Timing(False)
    tokens = output_tokens(record, count)
    first, last = record.arrivals[0], record.arrivals[-1]
    if not record.streamed:
        return Timing(True, tokens, e2e=last - record.scheduled)
    tpot, itl = None, np.zeros(0)
    if tokens is not None and tokens >= 2:
        parts = carried(record, tokens)
        timed = np.flatnonzero(parts)
        times, parts = np.asarray(record.arrivals)[timed], parts[timed]
        if len(timed) >= 2:
            tpot = (last - first) / (tokens - 1)
            itl = np.concatenate((np.zeros(parts[0] - 1), np.repeat(np.diff(times) / parts[1:], parts[1:])))
    return Timing(ok=True, tokens=tokens, ttft=first - record.scheduled, ttft_sent=first - record.sent,
                  e2e=last - record.scheduled, tpot=tpot, itl=itl)


class Slo(msgspec.Struct, frozen=True):
    """Limits in seconds that a good request keeps; None: no limit."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Parses `ttft=500,tpot=50ms,e2e=3s`; a bare number is milliseconds. Raises RequestError."""
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            if name not in cls.__struct_fields__ or name in limits:
                raise RequestError(f"--slo takes each of {', '.join(cls.__struct_fields__)} once, not {part.strip()!r}")
            limits[name] = _seconds(value)
        return cls(**limits)

    def good(self, timing: Timing) -> bool:
        """Returns whether the request did not fail and keeps every limit. A request with a single token has no TPOT to
        keep."""
        if not timing.ok:
            return False
        tpot = 0.0 if timing.tokens == 1 else timing.tpot
        pairs: Iterable[tuple[float | None, float | None]] = (
            (self.ttft, timing.ttft), (self.tpot, tpot), (self.e2e, timing.e2e))
        return all(limit is None or (value is not None and value <= limit) for limit, value in pairs)


def _seconds(text: str) -> float:
    number, scale = (text[:-2], 1e-3) if text.endswith("ms") else (text[:-1], 1.0) if text.endswith("s") else (
        text, 1e-3)
    try:
        seconds = float(number) * scale
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e6:
        raise RequestError(f"--slo: {text!r} is not a time such as 500, 500ms or 0.5s")
    return seconds
