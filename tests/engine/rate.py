"""Steps per CPU second of the testbed: scheduler, cache and runner without a model. `python -m tests.engine.rate`.

The schedules are fixed, so two commits compare by the ratio of their rates, taken in turns on one machine.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from tests.engine.testbed import finish_all, make_engine, submit, text


def ran(seed: int, *, overlap: bool, burst: int, pages: int, seqs: int) -> tuple[int, float]:
    """Steps, and the CPU seconds they took, of one schedule of 60 requests that share prefixes and preempt."""
    dice = random.Random(seed)
    engine = make_engine(overlap=overlap, burst=burst, pages=pages, seqs=seqs, tokens=64)
    bases = [text(i, 40) for i in range(4)]
    steps = 0
    begun = time.process_time()
    for _ in range(60):
        submit(engine, dice.choice(bases)[: dice.randrange(1, 40)] + text(dice.randrange(999), dice.randrange(30)),
               max_tokens=dice.choice([1, 8, 40]))
        for _ in range(dice.randrange(3)):
            if engine.busy:
                engine.step()
                steps += 1
    steps += finish_all(engine)
    return steps, time.process_time() - begun


def rate(seeds: int) -> float:
    """Steps per CPU second over all settings."""
    settings = [(overlap, burst, pages, seqs) for overlap in (False, True) for burst in (1, 8)
                for pages, seqs in ((64, 8), (24, 8), (400, 40))]
    taken = [ran(seed, overlap=overlap, burst=burst, pages=pages, seqs=seqs)
             for seed in range(seeds) for overlap, burst, pages, seqs in settings]
    return sum(steps for steps, _ in taken) / sum(seconds for _, seconds in taken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rates = [rate(args.seeds) for _ in range(args.rounds)]
    print(f"{statistics.median(rates):.0f} steps/s ({min(rates):.0f} .. {max(rates):.0f})")
