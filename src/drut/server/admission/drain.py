"""How fast requests are finished, and so how long it takes until the queue has room."""

from __future__ import annotations

from collections import deque

WINDOW_S = 30.0
ENOUGH = 3  # finished requests that make a rate
MOST_EVENTS = 512  # that a rate rests on: the latest; a clock that is seldom on may take hours for its window
LEAST_S, MOST_S = 0.1, 600.0


class Rate:
    """Events a second over a sliding window of the time in which it is switched on, of the latest MOST_EVENTS."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._on_since: float | None = None
        self._elapsed = 0.0  # switched on, before `_on_since`
        self._events: deque[tuple[float, float]] = deque()  # when, on that clock, and how much
        self._origin = 0.0  # the last event that has left the window

    def switch(self, on: bool, now: float) -> None:
        if on and self._on_since is None:
            self._on_since = now
        elif not on and self._on_since is not None:
            self._elapsed += now - self._on_since
            self._on_since = None

    def add(self, weight: float, now: float) -> None:
        if self._on_since is not None:
            self._events.append((self._clock(now), weight))
            self._forget(self._clock(now))  # else a server that refuses nobody would remember all it ever did

    def _forget(self, clock: float) -> None:
        while self._events and (self._events[0][0] < clock - self._window_s or len(self._events) > MOST_EVENTS):
            self._origin = self._events.popleft()[0]

    def _clock(self, now: float) -> float:
        return self._elapsed + (now - self._on_since if self._on_since is not None else 0.0)

    def per_second(self, now: float) -> tuple[float, int]:
        """The rate, and how many events it rests on.

        It is taken from event to event, so that requests that end in bunches do not bend it; where none has come for
        longer than that, the silence counts by half.
        """
        clock = self._clock(now)
        self._forget(clock)
        if not self._events:
            return 0.0, 0
        span = max(self._events[-1][0] - self._origin, (clock - self._origin) / 2, 1e-9)
        return sum(weight for _, weight in self._events) / span, len(self._events)


class DrainMeter:
    """Requests and prompt tokens finished a second. What was measured while others waited counts for more than what
    was measured while the engine had time to spare."""

    def __init__(self, now: float, window_s: float = WINDOW_S) -> None:
        self._began = now
        self._full, self._busy = (tuple(Rate(window_s) for _ in range(2)) for _ in range(2))
        self._promised: deque[tuple[float, float]] = deque()  # when a refused request may come back, and its size
        self._promises = 0.0  # sum of the sizes

    def state(self, *, busy: bool, backlog: bool, now: float) -> None:
        """Whether the engine has work, and whether requests wait for it."""
        for rates, on in ((self._full, backlog), (self._busy, busy)):
            for rate in rates:
                rate.switch(on, now)

    def finished(self, tokens: int, now: float) -> None:
        """A request with so many prompt tokens has left the engine."""
        for requests, prompt_tokens in (self._full, self._busy):
            requests.add(1, now)
            prompt_tokens.add(tokens, now)

    def retry_after_s(self, *, needed: float, queued: float, by_tokens: bool, now: float, excess: float = 0.0) -> float:
        """Seconds until the queue has room for `needed` requests (or tokens) more than it holds; `excess` of these have
        to leave before it has any.

        Room already promised to others that were refused comes off first, so that they do not all come back at once;
        but in the time it takes to empty the whole queue of `queued` there is room for anyone.
        """
        rate = self._rate(by_tokens, now)
        while self._promised and self._promised[0][0] <= now:
            self._promises -= self._promised.popleft()[1]
        room = max(queued, needed)
        promised = min(self._promises, room - needed)
        # Where nothing has been finished yet: what took so long may take as long again.
        wait = (excess + needed + promised) / rate if rate is not None else now - self._began
        wait = min(max(wait, LEAST_S), MOST_S)
        if self._promises + needed <= room:
            self._promised.append((now + wait, needed))
            self._promises += needed
        return wait

    def within(self, seconds: float, now: float) -> int | None:
        """Requests that leave the engine in so long while others wait; None where that has not been seen yet."""
        rate, count = self._full[0].per_second(now)
        return int(rate * seconds) if count >= ENOUGH else None

    def _rate(self, by_tokens: bool, now: float) -> float | None:
        full, count = self._full[by_tokens].per_second(now)
        busy, fallback = self._busy[by_tokens].per_second(now)
        if count >= ENOUGH or (count and not fallback):
            return full
        return busy if fallback else None
