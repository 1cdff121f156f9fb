"""The floor of each step as it runs: what the ledger of `drut profile` adds up by operation, at a few microseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from drut.engine.work import Work
from drut.kernels.cost import StepShape
from drut.kernels.ops import Op
from drut.observe.ledger import Peaks

# What tells costs apart, windows by lengths of two rows.
PROBES = (*(StepShape(2, 1, 2 * n, 2 * n - 1, ((2, 2 * n),)) for n in (8 << i for i in range(18))),
          StepShape(1, 1, 97, 101), StepShape(13, 7, 1009, 9973), StepShape(509, 31, 65537, 1000003))


class StepFloor:
    """Floors of the steps of one plan. Operations that cost the same, as those of equal layers, are asked once."""

    def __init__(self, ops: Sequence[Op], peaks: Peaks) -> None:
        probed = [(type(op), *(op.cost(shape) for shape in PROBES)) for op in ops]
        counts = Counter(probed)
        unlike = dict(zip(probed, ops, strict=True))
        self._groups = [(op, counts[key]) for key, op in unlike.items() if any(op.cost(PROBES[-1]))]
        self._peaks = peaks

    def seconds(self, shape: StepShape) -> float:
        """The sum over the operations, as `observe.ledger.account` has it."""
        costs = [(op.cost(shape), count) for op, count in self._groups]
        working_set = sum(cost.bytes * count for cost, count in costs)
        floor_s = self._peaks.at(working_set)
        return sum(floor_s(*cost) * count for cost, count in costs)


def shape_of(work: Sequence[Work], later: int = 0) -> StepShape:
    """Of the step that computes `work`, or of the one `later` steps on in a burst of it, a row a sequence."""
    rows = samples = kv_tokens = row_tokens = 0
    sequences = []
    for w in work:
        first, count = (w.start + w.rows - 1 + later, 1) if later else (w.start, w.rows)
        rows += count
        samples += w.samples
        kv_tokens += first + count
        row_tokens += count * first + count * (count + 1) // 2
        sequences.append((count, first + count))
    return StepShape(rows, samples, kv_tokens, row_tokens, tuple(sequences))
