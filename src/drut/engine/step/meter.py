"""The step meter: counts steps, rows and seconds, and corrects the step predictor."""

from __future__ import annotations

import time
from collections.abc import Sequence

from drut.engine.schedule.work import ScheduledRequest
from drut.kernels.cost import StepShape
from drut.kernels.predictor import Predictor
from drut.observe.histogram import Histogram, spread
from drut.observe.ledger import Peaks

ROW_BOUNDS = [float(1 << i) for i in range(15)]  # tokens of a step
STEP_BOUNDS = spread(1e-4, 10.0)  # seconds: from a tiny model on a GPU to a long prompt on a CPU
FIRST, SAMPLED = 32, 8  # after the first 32 steps, one in 8 decode steps corrects the predictor: they are alike


class StepMeter:
    """Counts finished steps with their rows and durations, and failed steps. Finished steps correct the predictor."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor, self._adds = predictor, 0
        self.seconds, self.rows_of_steps = Histogram(STEP_BOUNDS), Histogram(ROW_BOUNDS)
        self.steps = self.rows = self.failed = 0
        self.last_at = time.monotonic()
        self.floor_seconds: float | None = None  # of all steps since `compare`

    def compare(self, peaks: Peaks) -> None:
        """Sets the machine's peaks: from now on the roofline times of steps are added up, too."""
        self._predictor.use(peaks)
        self.floor_seconds = self.floor_seconds or 0.0

    def add(self, work: Sequence[ScheduledRequest], steps: int, seconds: float) -> None:
        """Records a step of `work`, or a burst of `steps` steps that began with it; each took `seconds`."""
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
            # In a burst the context grows by the same number in each step, so the middle step represents all.
            shape = StepShape.of(work, (steps - 1) // 2)
            if sampled:
                self._predictor.observe(shape, seconds)
            if self.floor_seconds is not None:
                self.floor_seconds += steps * self._predictor.floor(shape)
        self.last_at = time.monotonic()
