"""The message that reports an engine's counts."""

from __future__ import annotations

import time
from collections import Counter

from drut.cache.kinds import FullGroup
from drut.engine.engine import Engine
from drut.engine.service.messages import DraftStats, PageStats, Stats


def stats(engine: Engine) -> Stats:
    """Returns the current counts. Takes time proportional to the number of waiting requests."""
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
        window_pages=[PageStats(pool.total, pool.free, pool.cached, cache.evictable(i))
                      for i, pool in enumerate(cache.pools) if i and not isinstance(cache.groups[i], FullGroup)],
        expert_tokens={layer: (int(loads.sum()), int(loads.max()))
                       for layer, loads in engine.runner.executable.expert_loads().items()},
        row_bounds=meter.rows_of_steps.bounds, row_counts=list(meter.rows_of_steps.counts),
        compiled_grammars=engine.grammars.compiled if engine.grammars is not None else 0,
        drafts={method: DraftStats(counts.verifications, counts.drafted, list(counts.accepted))
                for method, counts in engine.speculation.counts.items()})
