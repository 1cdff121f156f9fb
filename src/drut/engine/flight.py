"""What was launched and is not over yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from drut.engine.work import Work
from drut.kernels.burst import Burst
from drut.kernels.ops import F32
from drut.kernels.output import StepOutput
from drut.kernels.pending import Pending


class Ran(NamedTuple):
    """What a launch returns when it is over. Its arrays stay as they are until `Flight.release`, whatever runs next."""

    output: StepOutput | None  # of one step; a burst's outputs are in the burst
    seconds: float  # that it took, or each step of a burst
    logits: F32 | None = None  # (samples, vocab), if a request of the step wants them
    pending: Pending | None = None  # that owns the output, where it may be used again


class Flight:
    """A step, or a burst of them over the same work."""

    def __init__(self, work: Sequence[Work], ran: Future[Ran] | Ran, burst: Burst | None = None) -> None:
        """`ran`: itself, where the step ran on the caller's thread."""
        self.work, self._ran, self.burst = work, ran, burst
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

    @property
    def ran(self) -> Ran:
        """Waits until it is over; raises what it raised."""
        return self._ran if isinstance(self._ran, Ran) else self._ran.result()

    @property
    def seconds(self) -> float:
        """Of the step, or of each in the burst; it has landed."""
        return self.ran.seconds

    @property
    def logits(self) -> F32 | None:
        """Of a step's samples; None of a burst."""
        return self.ran.logits if self.burst is None else None

    def stop(self) -> None:
        """Lets the step that runs be the last. One step alone ends anyway."""
        if self.burst is not None:
            self.burst.stop()

    def settle(self) -> None:
        """Waits until nothing of it runs, whether or not it failed."""
        if not isinstance(self._ran, Ran):
            wait([self._ran])

    def release(self) -> None:
        """The outputs were read and may be used again. It has landed."""
        if (pending := self.ran.pending) is not None:
            pending.release()

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
            output = self.ran.output
            assert output is not None
            self.read, self.landed = 1, True
            yield output
            return
        done, over = self.burst.progress
        while self.read < done:
            self.read += 1
            yield self.burst.output(self.read - 1)
        if over:
            _ = self.ran  # raises what it raised
            self.landed = True
