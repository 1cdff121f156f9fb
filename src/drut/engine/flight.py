"""What was launched and is not over yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from drut.engine.work import Work
from drut.kernels.burst import Burst
from drut.kernels.output import StepOutput

Result = Future[tuple[StepOutput | None, float]]  # of one step its output; the seconds it took, or each of a burst


class Flight:
    """A step, or a burst of them over the same work."""

    def __init__(self, work: Sequence[Work], result: Result, burst: Burst | None = None) -> None:
        self.work, self.result, self.burst = work, result, burst
        self.read = 0  # steps whose outputs were taken
        self.landed = False  # all outputs there will be were taken

    @property
    def planned(self) -> int:
        """Steps, if none of them is the last before its time."""
        return 1 + self.work[0].ahead

    @property
    def open_ended(self) -> bool:
        """Whether, as far as was read, nobody can say yet how many steps will have run. Not a word of what the burst
        says now: it may have ended since, and what it brought last would be passed over."""
        return self.burst is not None and not self.landed and self.planned - self.read > 1

    def stop(self) -> None:
        """Lets the step that runs be the last. One step alone ends anyway."""
        if self.burst is not None:
            self.burst.stop()

    def wait(self) -> None:
        """Until there is an output to take, or there will be none."""
        while self.burst is not None:
            done, over = self.burst.progress
            if done > self.read or over:
                return
            self.burst.wait(self.read)

    def outputs(self) -> Iterator[StepOutput]:
        """Takes the outputs there are; raises what the run raised."""
        if self.burst is None:
            output, _ = self.result.result()
            assert output is not None
            self.read, self.landed = 1, True
            yield output
            return
        done, over = self.burst.progress
        while self.read < done:
            self.read += 1
            yield self.burst.output(self.read - 1)
        if over:
            self.result.result()
            self.landed = True
