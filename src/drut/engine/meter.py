"""What the engine counts while it runs, and the message that tells it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drut.engine.messages import Pages, Stats
from drut.engine.work import Work
from drut.kernels.cost import StepShape
from drut.kernels.predictor import Predictor
from drut.observe.histogram import Histogram, spread
from drut.observe.ledger import Peaks

if TYPE_CHECKING:
    from drut.engine.engine import Engine

ROW_BOUNDS = [float(1 << i) for i in range(15)]  # tokens of a step
STEP_BOUNDS = spread(1e-4, 10.0)  # seconds: from a tiny model on a GPU to a long prompt on a CPU
FIRST, SAMPLED = 32, 8  # after the first, one in so many decoding steps corrects the predictor: they are alike


class StepMeter:
    """Steps that ended well, their rows and how long they took; and those that failed. They correct the predictor."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor, self._adds = predictor, 0
        self.seconds, self.rows_of_steps = Histogram(STEP_BOUNDS), Histogram(ROW_BOUNDS)
        self.steps = self.rows = self.failed = 0
        self.last_at = time.monotonic()
        self.floor_seconds: float | None = None  # of all steps since `compare`

    def compare(self, peaks: Peaks) -> None:
        """From now on the floors of steps by these peaks are added up, too."""
        self._predictor.use(peaks)
        self.floor_seconds = self.floor_seconds or 0.0

    def add(self, work: Sequence[Work], steps: int, seconds: float) -> None:
        """`steps` steps, the first of `work` and the others going on from it, took `seconds` each."""
        self.steps += steps
        first = sum([w.rows for w in work])
        self.rows += first + (steps - 1) * len(work)
        self.rows_of_steps.add(first)
        if steps > 1:
            self.rows_of_steps.add(len(work), steps - 1)
        self.seconds.add(seconds, steps)
        self._adds += 1
        sampled = first > len(work) or self._adds <= FIRST or self._adds % SAMPLED == 0
        if sampled or self.floor_seconds is not None:
            # In a burst the context grows by as much each step: the one in the middle stands for all.
            shape = StepShape.of(work, (steps - 1) // 2)
            if sampled:
                self._predictor.observe(shape, seconds)
            if self.floor_seconds is not None:
                self.floor_seconds += steps * self._predictor.floor(shape)
        self.last_at = time.monotonic()


def stats(engine: Engine) -> Stats:
    """The counts of this moment. Cheap: the time goes with the number of requests."""
    scheduler, cache, meter = engine.scheduler, engine.cache, engine.meter
    waiting = Counter(r.why.waits_on for r in scheduler.waiting)
    found = cache.stats
    return Stats(
        pages=cache.pool.total, free_pages=cache.pool.free, cached_pages=cache.pool.cached,
        evictable_pages=cache.evictable(0), running=len(scheduler.running), waiting=dict(waiting),
        preemptions=dict(scheduler.preemptions), expected_tokens=scheduler.expected_tokens,
        queried_tokens=found.queried, hit_tokens=found.hit, evicted_miss_tokens=found.evicted_miss,
        evicted_pages=found.evictions, steps=meter.steps, rows=meter.rows, failed_steps=meter.failed,
        idle_s=time.monotonic() - meter.last_at, step_bounds=meter.seconds.bounds,
        step_counts=list(meter.seconds.counts), step_seconds=meter.seconds.total, floor_seconds=meter.floor_seconds,
        window_pages=[Pages(pool.total, pool.free, pool.cached, cache.evictable(i))
                      for i, pool in enumerate(cache.pools) if i],
        expert_tokens={layer: (int(loads.sum()), int(loads.max()))
                       for layer, loads in engine.runner.executable.expert_loads().items()},
        row_bounds=meter.rows_of_steps.bounds, row_counts=list(meter.rows_of_steps.counts),
        compiled_grammars=engine.grammars.compiled if engine.grammars is not None else 0)
