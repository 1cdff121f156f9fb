"""The step predictor: predicts the seconds of a step from its roofline and the steps that were measured before.

The time of a step is a multiple of its roofline, because kernels do not reach the roof, other programs use the machine,
and the roof may not have been measured here. The multiple is different for attention over the context and for the rest.
It also depends on the rows: few rows share the reading of each weight, many are computed in blocks. So there are two
multiples at each of 1, 2, 4 and so on up to 512 rows, with interpolation in between. They are stored as logarithms: no
correction makes a prediction negative, and 2 times too long counts as much as 2 times too short.

Each measured step corrects the multiples by a part of its error, as a running mean: fully at its number of rows, half
at twice the rows, and at least a quarter everywhere, because most causes slow all steps down. Each of the two multiples
is corrected by its share of the step. A least-squares fit could not separate the two while only decode steps run. The
error of one step counts at most as a factor of 2, so that one delayed step has little influence.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from drut.kernels.cost import StepShape
from drut.kernels.plan import Plan
from drut.kernels.roofline import Amounts, StepRoofline
from drut.observe.ledger import Macs, Peaks

# Used if no roof was measured: figures of two CPUs. Measured steps soon correct the scale. That a float multiply-add
# costs 4 integer ones, as with VNNI, has a longer influence.
USUAL = Peaks(lambda working_set: 25e9, Macs(int4=400e9, int8=400e9, floats=100e9))
OVERHEAD_S = 3e-4  # time of any step without its operations: the host and the barriers
MULTIPLE = 2.0  # initial multiple of the roofline: kernels reach 30 to 75 % of the roof (docs/benchmarks.md)
KNOTS = 10  # at 1, 2, ... 512 rows
RATE = 0.1  # minimum share of an error that is corrected
FAR = 0.25  # minimum share of a correction at other numbers of rows
FIRST = 8  # number of steps whose errors are not bounded, because the initial scale may be far off
MAX_ERROR = math.log(2)  # bound on the error of a later step
SIZES = sorted({part << octave >> 2 for octave in range(2, 22) for part in (4, 5, 6, 7)} | {1, 2, 3})  # of chunks


class Predictor:
    """Predicts the time of the steps of one plan. For the engine's thread only."""

    def __init__(self, plan: Plan, peaks: Peaks | None = None, overhead_s: float = OVERHEAD_S) -> None:
        """`peaks`: None if they were not measured; `overhead_s`: time of a step without its operations."""
        self._ops, self._overhead_s = plan.ops, overhead_s
        self.use(peaks or USUAL)

    def use(self, peaks: Peaks) -> None:
        """Sets the peaks of the machine, and forgets all corrections made with other peaks."""
        self._floor = StepRoofline(self._ops, peaks)
        self._steps = 0
        # Two lists, for all but attention and for attention, by knot: the logarithm of the multiple, and the number of
        # steps that it is the mean of.
        self._logs = [math.log(MULTIPLE)] * KNOTS, [math.log(MULTIPLE)] * KNOTS
        self._seen = [0.0] * KNOTS, [0.0] * KNOTS

    def floor(self, shape: StepShape) -> float:
        """Returns the roofline of a step: the minimum seconds by the peaks."""
        return self._floor.seconds(shape)

    def seconds(self, shape: StepShape) -> float:
        """Returns the predicted seconds of a step of this shape, host included."""
        return self._seconds(self._floor.amounts(shape))

    def observe(self, shape: StepShape, seconds: float) -> None:
        """Corrects the multiples by a step of this shape that took `seconds`."""
        amounts = self._floor.amounts(shape)
        parts = self._corrected(self._floor.parts(amounts), amounts[1])
        predicted = sum(parts)
        error = math.log(max(seconds, 1e-9) / predicted)
        self._steps += 1
        if self._steps > FIRST:
            error = max(-MAX_ERROR, min(MAX_ERROR, error))
        place = _place(amounts[1])
        for knot in range(KNOTS):
            near = max(FAR, 0.5 ** abs(place - knot))
            for logs, seen, part_s in zip(self._logs, self._seen, parts, strict=True):
                weight = near * part_s / predicted
                if weight:
                    seen[knot] += weight
                    logs[knot] += max(RATE, 1 / seen[knot]) * weight * error

    def rows_within(self, shape: StepShape, start: int, seconds: float, max_rows: int) -> int:
        """Returns how many rows of another sequence from `start` on fit into a step of `shape` within `seconds`: one of
        SIZES, or `max_rows` if all fit; 0 if none."""
        amounts = self._floor.amounts(shape)

        def taken(rows: int) -> float:
            return self._seconds(self._floor.plus(amounts, start, rows))

        if taken(max_rows) <= seconds:
            return max_rows
        fit = bisect_right(SIZES, seconds, hi=bisect_right(SIZES, max_rows - 1), key=taken)
        return SIZES[fit - 1] if fit else 0

    def _seconds(self, amounts: Amounts) -> float:
        return sum(self._corrected(self._floor.parts(amounts), amounts[1]))

    def _corrected(self, floors: tuple[float, float], rows: int) -> tuple[float, float]:
        """Returns the predicted seconds of all but attention, and of attention over the context."""
        place = _place(rows)
        knot = min(int(place), KNOTS - 2)
        beyond = place - knot
        fixed, reading = ((1 - beyond) * logs[knot] + beyond * logs[knot + 1] for logs in self._logs)
        return (floors[0] + self._overhead_s) * math.exp(fixed), floors[1] * math.exp(reading)


def _place(rows: int) -> float:
    """Returns the position of a number of rows among the knots."""
    return min(math.log2(max(rows, 1)), KNOTS - 1.0)
