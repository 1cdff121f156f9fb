"""The rate of finished requests, and the time until the queue has room."""

from __future__ import annotations

from collections import deque

WINDOW_S = 30.0
ENOUGH = 3  # minimum of finished requests for a rate
MAX_EVENTS = 512  # of a rate, the latest: a clock that is seldom on may take hours for its window
MIN_S, MAX_S = 0.1, 600.0


class DrainRate:
    """Events per second over a sliding window. Its clock runs only while it is switched on."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._on_since: float | None = None
        self._elapsed = 0.0  # seconds switched on before `_on_since`
        self._events: deque[tuple[float, float]] = deque()  # time on that clock, and weight
        self._origin = 0.0  # time of the last event that has left the window

    def switch(self, on: bool, now: float) -> None:
        if on and self._on_since is None:
            self._on_since = now
        elif not on and self._on_since is not None:
            self._elapsed += now - self._on_since
            self._on_since = None

    def add(self, weight: float, now: float) -> None:
        if self._on_since is not None:
            self._events.append((self._clock(now), weight))
            self._forget(self._clock(now))  # else events would pile up: `per_second` is called only at refusals

    def _forget(self, clock: float) -> None:
        while self._events and (self._events[0][0] < clock - self._window_s or len(self._events) > MAX_EVENTS):
            self._origin = self._events.popleft()[0]

    def _clock(self, now: float) -> float:
        return self._elapsed + (now - self._on_since if self._on_since is not None else 0.0)

    def per_second(self, now: float) -> tuple[float, int]:
        """Returns the rate and the number of events it is computed from.

        The span ends at the last event, so that requests that end in groups do not distort it. If the time since the
        last event is longer than that span, half of the time up to now counts.
        """
        clock = self._clock(now)
        self._forget(clock)
        if not self._events:
            return 0.0, 0
        span = max(self._events[-1][0] - self._origin, (clock - self._origin) / 2, 1e-9)
        return sum(weight for _, weight in self._events) / span, len(self._events)


class DrainMeter:
    """Requests and prompt tokens finished per second.

    Rates measured while requests waited are preferred to those measured while the engine had capacity to spare.
    """

    def __init__(self, now: float, window_s: float = WINDOW_S) -> None:
        self._began = now
        self._full, self._busy = (tuple(DrainRate(window_s) for _ in range(2)) for _ in range(2))
        self._promised: deque[tuple[float, float]] = deque()  # refused requests: when they may come back, their size
        self._promises = 0.0  # sum of these sizes

    def state(self, *, busy: bool, backlog: bool, now: float) -> None:
        """Updates whether the engine has work, and whether requests wait for it."""
        for rates, on in ((self._full, backlog), (self._busy, busy)):
            for rate in rates:
                rate.switch(on, now)

    def finished(self, tokens: int, now: float) -> None:
        """Counts a request with `tokens` prompt tokens that has left the engine."""
        for requests, prompt_tokens in (self._full, self._busy):
            requests.add(1, now)
            prompt_tokens.add(tokens, now)

    def retry_after_s(self, *, needed: float, queued: float, by_tokens: bool, now: float, excess: float = 0.0) -> float:
        """Returns seconds until the queue has room for `needed` further requests (or tokens); `excess` of those that
        wait must leave before it has any.

        Room promised to requests refused before is subtracted, so that they do not all come back at once; but no wait
        is longer than the time that emptying the whole queue of `queued` takes.
        """
        rate = self._rate(by_tokens, now)
        while self._promised and self._promised[0][0] <= now:
            self._promises -= self._promised.popleft()[1]
        room = max(queued, needed)
        promised = min(self._promises, room - needed)
        # Without a finished request, the time since the start is the estimate.
        wait = (excess + needed + promised) / rate if rate is not None else now - self._began
        wait = min(max(wait, MIN_S), MAX_S)
        if self._promises + needed <= room:
            self._promised.append((now + wait, needed))
            self._promises += needed
        return wait

    def within(self, seconds: float, now: float) -> int | None:
        """Returns how many requests leave the engine in `seconds` while others wait; None if not measured yet."""
        rate, count = self._full[0].per_second(now)
        return int(rate * seconds) if count >= ENOUGH else None

    def _rate(self, by_tokens: bool, now: float) -> float | None:
        full, count = self._full[by_tokens].per_second(now)
        busy, fallback = self._busy[by_tokens].per_second(now)
        if count >= ENOUGH or (count and not fallback):
            return full
        return busy if fallback else None
