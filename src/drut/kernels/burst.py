"""Several decoding steps in one call, and what they bring while it runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from drut.kernels.output import StepOutput

PATIENCE_S = 0.1  # a wait looks up so often, for interrupts


class Progress(NamedTuple):
    """Of a burst: steps whose outputs are there, and whether no other begins. While not over, one more is certain."""

    done: int
    over: bool


class Burst:
    """Up to `steps` steps of the same sequences, each row their last one and sampled, in the samples' order.

    It ends early where a step draws one of a sequence's `ends` or meets logits that are not finite, or after the step
    that runs when `stop` is called. Filled by the thread that runs it, read by another.
    """

    def __init__(self, steps: int, ends: Sequence[Sequence[int]]) -> None:
        self.steps, self.ends = steps, ends
        self._outputs: list[StepOutput] = []
        self._progress = Progress(0, False)
        self._stopped = False
        self._changed = threading.Condition()

    @property
    def progress(self) -> Progress:
        return self._progress

    def stop(self) -> None:
        self._stopped = True

    def output(self, step: int) -> StepOutput:
        return self._outputs[step]

    def wait(self, seen: int) -> None:
        """Until more than `seen` steps are done or the burst is over. May return before."""
        with self._changed:
            self._changed.wait_for(lambda: self._progress.done > seen or self._progress.over, PATIENCE_S)

    def last(self, output: StepOutput) -> bool:
        """Whether no step is to follow the one that brought this, the next to be `put`."""
        ended = any(int(token) in ends for token, ends in zip(output.tokens, self.ends, strict=True))
        return len(self._outputs) + 1 >= self.steps or self._stopped or ended or not output.drawn.all()

    def put(self, output: StepOutput, *, over: bool) -> None:
        """Takes a step's output, which stays as it is; `over`: what `last` said of it."""
        self._outputs.append(output)
        self._tell(len(self._outputs), over)

    def abandon(self) -> None:
        """No step follows, whatever was planned: what ran it is done with it, or has failed."""
        self._tell(self._progress.done, True)

    def _tell(self, done: int, over: bool) -> None:
        with self._changed:
            self._progress = Progress(done, over)
            self._changed.notify_all()
