"""What the engine counts while it runs, and the message that tells it."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from drut.engine.messages import Stats
from drut.observe.histogram import Histogram, spread

if TYPE_CHECKING:
    from drut.engine.engine import Engine

STEP_BOUNDS = spread(1e-4, 10.0)  # seconds: from a tiny model on a GPU to a long prompt on a CPU


class StepMeter:
    """Steps that ended well, their rows and how long they took; and those that failed."""

    def __init__(self) -> None:
        self.seconds = Histogram(STEP_BOUNDS)
        self.steps = self.rows = self.failed = 0
        self.last_at = time.monotonic()

    def add(self, steps: int, rows: int, seconds: float) -> None:
        """`steps` steps with so many rows together took `seconds` each."""
        self.steps += steps
        self.rows += rows
        self.seconds.add(seconds, steps)
        self.last_at = time.monotonic()


def stats(engine: Engine) -> Stats:
    """The counts of this moment. Cheap: the time goes with the number of requests."""
    scheduler, cache, meter = engine.scheduler, engine.cache, engine.meter
    waiting = Counter(r.why.waits_on for r in scheduler.waiting)
    found = cache.stats
    return Stats(
        cache.pool.total, cache.pool.free, cache.pool.cached, cache.tree.evictable, len(scheduler.running),
        dict(waiting), dict(scheduler.preemptions), scheduler.expected_tokens, found.queried, found.hit,
        found.evicted_miss, found.evictions,
        meter.steps, meter.rows, meter.failed, time.monotonic() - meter.last_at, meter.seconds.bounds,
        list(meter.seconds.counts), meter.seconds.total)
