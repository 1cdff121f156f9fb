"""In-flight steps: launched, and not all outputs processed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from drut.engine.schedule.work import ScheduledRequest
from drut.kernels.burst import Burst
from drut.kernels.ops import F32
from drut.kernels.output import StepOutput
from drut.kernels.pending import Pending


class FinishedStep(NamedTuple):
    """Holds the results of a finished step. No later step writes the arrays before `InflightStep.release`."""

    output: StepOutput | None  # of one step; a burst's outputs are in the burst
    seconds: float  # duration of the step; of a burst, the mean of its steps
    logits: F32 | None = None  # (samples, vocab), if a request of the step wants them
    pending: Pending | None = None  # owner of the output, if the memory is reused
    taps: F32 | None = None  # (rows, width), if a drafter reads them; of a burst, those of its last step


class InflightStep:
    """An in-flight step, or a burst of steps over the same work. The engine's thread uses it while the step runs."""

    def __init__(self, work: Sequence[ScheduledRequest], ran: Future[FinishedStep] | FinishedStep,
                 burst: Burst | None = None) -> None:
        """`ran`: the result itself if the step ran on the caller's thread, else its future."""
        self.work, self._ran, self.burst = work, ran, burst
        self.read = 0  # steps whose outputs were read
        self.complete = False  # all outputs were read, and no more will come

    @property
    def planned(self) -> int:
        """The number of steps, if none ends the burst early."""
        return 1 + self.work[0].ahead

    @property
    def length_unknown(self) -> bool:
        """True while the number of steps that the burst will run is unknown.

        Uses only the outputs that were read. Asking the burst would be a race: it may have ended since, and its last
        output would be skipped."""
        return self.burst is not None and not self.complete and self.planned - self.read > 1

    @property
    def ran(self) -> FinishedStep:
        """Waits for the end and returns the result. Raises the error of the step."""
        return self._ran if isinstance(self._ran, FinishedStep) else self._ran.result()

    @property
    def seconds(self) -> float:
        """The duration of the step, or the mean of a burst's steps. Call when it is complete."""
        return self.ran.seconds

    @property
    def logits(self) -> F32 | None:
        """The logits of the samples, if a request wants them; None for a burst."""
        return self.ran.logits if self.burst is None else None

    def stop(self) -> None:
        """Ends a burst after its current step. Has no effect on a single step."""
        if self.burst is not None:
            self.burst.stop()

    def settle(self) -> None:
        """Waits for the end, and ignores an error."""
        if not isinstance(self._ran, FinishedStep):
            wait([self._ran])

    def release(self) -> None:
        """Gives the memory of the outputs back to the backend. Call when it is complete; later reads are races."""
        if (pending := self.ran.pending) is not None:
            pending.release()

    def wait(self) -> None:
        """Waits until there is an output to read, or no more will come. A single step is waited for by `outputs`."""
        while self.burst is not None:
            done, over = self.burst.progress
            if done > self.read or over:
                return
            self.burst.wait(self.read)

    def outputs(self) -> Iterator[StepOutput]:
        """Yields the outputs that are new. Raises the error of the step."""
        if self.burst is None:
            output = self.ran.output
            assert output is not None
            self.read, self.complete = 1, True
            yield output
            return
        done, over = self.burst.progress
        while self.read < done:
            self.read += 1
            yield self.burst.output(self.read - 1)
        if over:
            _ = self.ran  # raises the error of the step, if there was one
            self.complete = True
