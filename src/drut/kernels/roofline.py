"""The roofline of a step: its minimum seconds, equal to the sum over operations in the ledger of `drut profile`, but
computed in a few microseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from drut.kernels.cost import FREE, NOTHING, CostRate, StepShape, seen
from drut.kernels.ops import Op
from drut.observe.ledger import Peaks

Amounts = list[int]  # the units of a step that cost: 1, rows, samples, then by window, then by experts


class StepRoofline:
    """Computes the roofline of the steps of one plan. Operations of equal rates are counted together."""

    def __init__(self, ops: Sequence[Op], peaks: Peaks) -> None:
        counts = Counter(op.rate for op in ops if op.rate != NOTHING)
        self._windows = sorted({rate.window for rate in counts})
        self._experts = list({rate.experts: None for rate in counts if rate.experts is not None})
        self._bandwidth = peaks.bandwidth
        fixed, reading = ([self._terms(rate, count, peaks) for rate, count in counts.items() if rate.reads is reads]
                          for reads in (False, True))
        self._groups, self._fixed = fixed + reading, len(fixed)
        self._bytes = [0] * (3 + 2 * len(self._windows) + len(self._experts))  # total bytes per unit of each amount
        for i, nbytes, _ in chain(*self._groups):
            self._bytes[i] += nbytes

    def _terms(self, rate: CostRate, count: int, peaks: Peaks) -> list[tuple[int, int, float]]:
        """Returns the cost of `count` operations per unit of each amount: its index, bytes, and seconds of
        multiply-adds."""
        of_window = 3 + 2 * self._windows.index(rate.window)
        costs = {0: rate.once, 1: rate.row, 2: rate.sample, of_window: rate.kv_token, of_window + 1: rate.row_token}
        if rate.experts is not None:
            costs[3 + 2 * len(self._windows) + self._experts.index(rate.experts)] = rate.expert
        return [(i, count * c.bytes, count * peaks.multiplying_s(c.macs)) for i, c in costs.items() if c != FREE]

    def amounts(self, shape: StepShape) -> Amounts:
        """Returns the amounts of a step. Used experts are as expected for random routing, not as measured."""
        found = [1, shape.rows, shape.samples]
        for window in self._windows:
            found += shape.seen(window)
        return found + [experts.expected(shape.rows) for experts in self._experts]

    def seconds(self, shape: StepShape) -> float:
        """Returns the sum over the operations, equal to that of `observe.ledger.account`."""
        return sum(self.parts(self.amounts(shape)))

    def plus(self, amounts: Amounts, start: int, rows: int) -> Amounts:
        """Returns the amounts of a step after adding `rows` rows of one more sequence, from `start` on."""
        both = [1, amounts[1] + rows, amounts[2]]
        for window in self._windows:
            kv_tokens, row_tokens = seen(rows, start + rows, window)
            both += amounts[len(both)] + kv_tokens, amounts[len(both) + 1] + row_tokens
        return both + [experts.expected(both[1]) for experts in self._experts]

    def parts(self, amounts: Amounts) -> tuple[float, float]:
        """Returns the seconds of all but attention, and of attention over the context."""
        working_set = sum([count * nbytes for count, nbytes in zip(amounts, self._bytes, strict=True)])
        byte_s = 1 / self._bandwidth(working_set)
        floors = []
        for terms in self._groups:
            nbytes, busy_s = 0, 0.0
            for i, each_bytes, each_s in terms:
                nbytes += amounts[i] * each_bytes
                busy_s += amounts[i] * each_s
            moving_s = nbytes * byte_s
            floors.append(moving_s if moving_s > busy_s else busy_s)
        return sum(floors[: self._fixed]), sum(floors[self._fixed :])
