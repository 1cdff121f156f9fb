"""Bursts: several decode steps in one call (multi-step decoding), and their outputs while the call runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from drut.kernels.output import StepOutput

PATIENCE_S = 0.1  # maximum time of one wait, so that the thread can handle interrupts


class BurstProgress(NamedTuple):
    """The progress of a burst: `done` steps have outputs; `over`: no other step begins. While it is not over, at least
    one more output follows."""

    done: int
    over: bool


class Burst:
    """At most `steps` decode steps of the same sequences: one row per sequence, in the order of the samples.

    It ends early if a step draws one of a sequence's `ends` or a logit is not finite, or after the current step when
    `stop` is called. Threads: the thread that runs the steps writes, another one reads.
    """

    def __init__(self, steps: int, ends: Sequence[Sequence[int]]) -> None:
        self.steps, self.ends = steps, ends
        self._outputs: list[StepOutput] = []
        self._progress = BurstProgress(0, False)
        self._stopped = False
        self._changed = threading.Condition()

    @property
    def progress(self) -> BurstProgress:
        return self._progress

    def stop(self) -> None:
        self._stopped = True

    def output(self, step: int) -> StepOutput:
        return self._outputs[step]

    def wait(self, seen: int) -> None:
        """Waits until more than `seen` steps are done or the burst is over. May return earlier."""
        with self._changed:
            self._changed.wait_for(lambda: self._progress.done > seen or self._progress.over, PATIENCE_S)

    def last(self, output: StepOutput) -> bool:
        """Returns True if no step may follow the one with this output. Call before `put`."""
        ended = any(int(token) in ends for token, ends in zip(output.tokens, self.ends, strict=True))
        return len(self._outputs) + 1 >= self.steps or self._stopped or ended or not output.drawn.all()

    def put(self, output: StepOutput, *, over: bool) -> None:
        """Adds the output of a step, which must not change any more; `over`: what `last` returned for it."""
        self._outputs.append(output)
        self._set_progress(len(self._outputs), over)

    def abandon(self) -> None:
        """Marks the burst as over: its thread has finished or failed, and no step follows."""
        self._set_progress(self._progress.done, True)

    def _set_progress(self, done: int, over: bool) -> None:
        with self._changed:
            self._progress = BurstProgress(done, over)
            self._changed.notify_all()
