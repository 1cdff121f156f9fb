"""Pairs of turns, and their ratio with its 95 % interval.

Both sides of a pair run within milliseconds of each other, so that slow minutes of the host cancel in the ratio. The
placement of a process's memory pages is random at its start and fixed for its life; thousands of pairs do not average
it out. Therefore the sides are launched several times, and the interval is Student's over the launches.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from drut.bench.stats.paired import Paired, paired

BASE, NEW = "base", "new"
WARM_UP = 4  # pairs of each launch that are not counted


@dataclass
class Launch:
    """The seconds of each counted turn, by side, and the number of pairs with different output."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {BASE: [], NEW: []})
    unequal: int = 0

    def ratio(self) -> float:
        """Returns the speed of the new side over the base's: the median over the pairs."""
        logs = [math.log(b / n) for b, n in zip(self.seconds[BASE], self.seconds[NEW], strict=True)]
        return math.exp(statistics.median(logs))


Ask = Callable[[int], tuple[float, str]]  # maps a turn's number to its seconds and its output's digest


def run_launch(sides: dict[str, Ask], pairs: int, rest: Callable[[], None]) -> Launch:
    """Runs `pairs` counted pairs of turns, after WARM_UP more; the sides alternate in going first. `rest` runs between
    turns."""
    launch = Launch()
    for number in range(-WARM_UP, pairs):
        order = (BASE, NEW) if number % 2 else (NEW, BASE)
        done = {}
        for name in order:
            rest()
            done[name] = sides[name](number + WARM_UP)
        launch.unequal += done[BASE][1] != done[NEW][1]
        if number >= 0:
            for name, (seconds, _) in done.items():
                launch.seconds[name].append(seconds)
    return launch


def summary(launches: Sequence[Launch]) -> Paired:
    """Returns the new side's speed over the base's, with its interval. Raises ValueError for fewer than two
    launches."""
    found = paired({i: launch.ratio() for i, launch in enumerate(launches)}, dict.fromkeys(range(len(launches)), 1.0))
    if found is None:
        raise ValueError("an interval needs at least two launches")
    return found
