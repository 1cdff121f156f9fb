"""Seconds of a step, predicted: its floor and what comes on top, corrected by the steps that ran.

A step takes a multiple of its floor, for kernels do not reach the roof, others use the machine too, and the roof may
not have been measured here. The multiple differs by what the time goes into: attention over the context, or all else.
And by rows: a few share each weight they read, many are computed in blocks. So there is a multiple of each of the two
at 1, 8, 64 and 512 rows, in between interpolated, and one of all, which follows the machine as its clock and its other
load change. All are kept as logarithms: no correction makes a prediction negative, and 2 times too long weighs as much
as 2 times too short.

Each step corrects them a little against its error (a stochastic gradient: a multiple changes by its share in the
prediction, and faster the less was seen of it). A least-squares fit would have nothing to tell apart while only
decoding runs. The error of one step counts as a factor of 2 at most, so a step that was held up is soon forgotten.
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
OCTAVES, KNOTS = 3, 4  # knots at 1, 8, 64 and 512 rows
RATE, RATE_ALL = 0.1, 0.05  # least part of an error that is corrected at once, at the step's rows and for all steps
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
        self._all, self._seen = math.log(MULTIPLE), 0
        # By knot, of all but attention, then of that: the logarithm on top of the one for all, and steps' worth seen.
        self._logs, self._steps = [0.0] * (2 * KNOTS), [0.0] * (2 * KNOTS)

    def floor(self, shape: StepShape) -> float:
        """The least seconds by the peaks."""
        return self._floor.seconds(shape)

    def seconds(self, shape: StepShape) -> float:
        """What a step of this shape takes, host and all."""
        return self._seconds(self._floor.amounts(shape))

    def observe(self, shape: StepShape, seconds: float) -> float:
        """A step of this shape took `seconds`. Returns its floor."""
        amounts = self._floor.amounts(shape)
        floors = self._floor.parts(amounts)
        fixed_s, reading_s = self._corrected(floors, amounts[1])
        error = math.log(max(seconds, 1e-9) / (fixed_s + reading_s))
        self._seen += 1
        if self._seen > FIRST:
            error = max(-MOST, min(MOST, error))
        rate = max(RATE_ALL, 1 / self._seen)
        self._all += rate * error
        for knot, weight in _knots(amounts[1]):
            for at, part_s in ((knot, fixed_s), (KNOTS + knot, reading_s)):
                share = weight * part_s / (fixed_s + reading_s)
                self._logs[at] += max(RATE, 1 / (1 + self._steps[at])) * share * (1 - rate) * error
                self._steps[at] += share
        return sum(floors)

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
        fixed_s, reading_s = floors
        fixed = reading = self._all
        for knot, weight in _knots(rows):
            fixed += weight * self._logs[knot]
            reading += weight * self._logs[KNOTS + knot]
        return (fixed_s + self._overhead_s) * math.exp(fixed), reading_s * math.exp(reading)


def _knots(rows: int) -> tuple[tuple[int, float], tuple[int, float]]:
    """The two knots about so many rows, and how near each is: 1 in all."""
    place = min(math.log2(max(rows, 1)) / OCTAVES, KNOTS - 1.001)
    knot = int(place)
    return (knot, knot + 1 - place), (knot + 1, place - knot)
