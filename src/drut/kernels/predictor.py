"""Seconds of a step, predicted: its floor and what comes on top, corrected by the steps that ran.

A step takes a multiple of its floor, for kernels do not reach the roof, others use the machine too, and the roof may
not have been measured here. The multiple differs by what the time goes into, attention over the context or all else,
and by rows: a few share each weight they read, more are computed in blocks. So there is a multiple of each of the two
at 1, 2, 4 and so on up to 512 rows, in between interpolated. They are kept as logarithms: no correction makes a
prediction negative, and 2 times too long weighs as much as 2 times too short.

Each step corrects them by a part of its error, a running mean: in full at its rows, half as much at twice the rows, and
at least a quarter at any, as what slows one kind of step down mostly slows all. Of the two, each by its share in the
step. A least-squares fit would have nothing to tell apart while only decoding runs. The error of one step counts as a
factor of 2 at most, so a step that was held up is soon forgotten.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from drut.kernels.cost import StepShape
from drut.kernels.floor import Amounts, StepFloor
from drut.kernels.plan import Plan
from drut.observe.ledger import Peaks

# Where no roof was measured: of two CPUs. The scale is soon corrected; that a float multiply-add costs 5 integer ones,
# as with VNNI or AVX2 here, matters longer.
USUAL = Peaks(lambda working_set: 25e9, int8_macs=400e9, float_macs=80e9)
OVERHEAD_S = 3e-4  # of a step whatever it holds: the host, and where threads meet
MULTIPLE = 2.0  # of the floor before any step ran: kernels reach 30 to 75 % of the roof (docs/benchmarks.md)
KNOTS = 10  # at 1, 2, ... 512 rows
RATE = 0.1  # of an error that is corrected at least
FAR = 0.25  # of a correction that reaches any number of rows
FIRST = 8  # steps whose errors count in full, as the first scale may be far off
MOST = math.log(2)  # of the error of one step from then on
SIZES = sorted({part << octave >> 2 for octave in range(2, 22) for part in (4, 5, 6, 7)} | {1, 2, 3})  # of chunks


class Predictor:
    """Of the steps of one plan. Used by the engine's thread alone."""

    def __init__(self, plan: Plan, peaks: Peaks | None = None, overhead_s: float = OVERHEAD_S) -> None:
        """`peaks`: None where they were not measured; `overhead_s`: of a step beside its operations."""
        self._ops, self._overhead_s = plan.ops, overhead_s
        self.use(peaks or USUAL)

    def use(self, peaks: Peaks) -> None:
        """From now on these are the machine's peaks; what was learned with others is dropped."""
        self._floor = StepFloor(self._ops, peaks)
        self._steps = 0
        # Of all but attention and of that, by knot: the logarithm of the multiple, and how many steps went into it.
        self._logs = [math.log(MULTIPLE)] * KNOTS, [math.log(MULTIPLE)] * KNOTS
        self._seen = [0.0] * KNOTS, [0.0] * KNOTS

    def floor(self, shape: StepShape) -> float:
        """The least seconds by the peaks."""
        return self._floor.seconds(shape)

    def seconds(self, shape: StepShape) -> float:
        """What a step of this shape takes, host and all."""
        return self._seconds(self._floor.amounts(shape))

    def observe(self, shape: StepShape, seconds: float) -> None:
        """A step of this shape took `seconds`."""
        amounts = self._floor.amounts(shape)
        parts = self._corrected(self._floor.parts(amounts), amounts[1])
        predicted = sum(parts)
        error = math.log(max(seconds, 1e-9) / predicted)
        self._steps += 1
        if self._steps > FIRST:
            error = max(-MOST, min(MOST, error))
        place = _place(amounts[1])
        for knot in range(KNOTS):
            near = max(FAR, 0.5 ** abs(place - knot))
            for logs, seen, part_s in zip(self._logs, self._seen, parts, strict=True):
                weight = near * part_s / predicted
                if weight:
                    seen[knot] += weight
                    logs[knot] += max(RATE, 1 / seen[knot]) * weight * error

    def rows_within(self, shape: StepShape, start: int, seconds: float, most: int) -> int:
        """How many rows of another sequence from `start` on, up to `most`, a step of `shape` may take along and be over
        in `seconds`: a size of SIZES, or `most`. 0 if none."""
        amounts = self._floor.amounts(shape)

        def taken(rows: int) -> float:
            return self._seconds(self._floor.plus(amounts, start, rows))

        if taken(most) <= seconds:
            return most
        fit = bisect_right(SIZES, seconds, hi=bisect_right(SIZES, most - 1), key=taken)
        return SIZES[fit - 1] if fit else 0

    def _seconds(self, amounts: Amounts) -> float:
        return sum(self._corrected(self._floor.parts(amounts), amounts[1]))

    def _corrected(self, floors: tuple[float, float], rows: int) -> tuple[float, float]:
        """Seconds of all but attention over the context, and of that."""
        place = _place(rows)
        knot = min(int(place), KNOTS - 2)
        beyond = place - knot
        fixed, reading = ((1 - beyond) * logs[knot] + beyond * logs[knot + 1] for logs in self._logs)
        return (floors[0] + self._overhead_s) * math.exp(fixed), floors[1] * math.exp(reading)


def _place(rows: int) -> float:
    """Where among the knots so many rows are."""
    return min(math.log2(max(rows, 1)), KNOTS - 1.0)
