"""The prefill pacer: bounds the prompt rows in a step with decoding streams, so that no stream stalls.

A step with prompt rows may take at most STALL times the time of the same step without them. The time of a row grows
with the number of positions that it attends to, so chunks shrink along a prompt. The step predictor predicts times. Now
and then a step has no prompt rows, so that the predictor can separate the time of decoding from that of prompt rows.
"""

from __future__ import annotations

from collections.abc import Collection

from drut.engine.schedule.work import ScheduledRequest
from drut.kernels.cost import StepShape
from drut.kernels.predictor import Predictor

STALL = 1.7  # maximum time of a step with prompt rows, in times of the step without
MIN = 4  # minimum prompt rows in a step, whatever the prediction
PLAIN_EVERY = 16  # maximum number of steps with prompt rows in a row


class PrefillPacer:
    """Limits the prompt rows of a step."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._mixed = 0  # steps with prompt rows and streams in a row

    def scheduled(self, *, mixed: bool) -> None:
        """Records whether the scheduled step has both prompt rows and streams (`mixed`)."""
        self._mixed = self._mixed + 1 if mixed else 0

    def tokens(self, work: Collection[ScheduledRequest], start: int, max_rows: int) -> int:
        """Returns the number of prompt rows from `start` on, at most `max_rows`, that may join a step with this
        work."""
        if self._mixed >= PLAIN_EVERY:
            return 0
        streams = [w for w in work if w.decodes]
        usual_s = self.predictor.seconds(StepShape.of(streams))
        fit = self.predictor.rows_within(StepShape.of(work), start, STALL * usual_s, max_rows)
        least = MIN - sum(w.rows for w in work if not w.decodes)
        return max(fit, min(least, max_rows), 0)
