"""A step that was launched, and the outputs that are its own."""

from __future__ import annotations

from abc import ABC, abstractmethod

from drut.kernels.output import StepOutput


class Pending(ABC):
    """A launched step. No later step writes its outputs before `release`."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether `result` would not wait."""

    @abstractmethod
    def result(self) -> StepOutput:
        """Waits for the step to end; the same outputs every time. Raises what the step raised."""

    def release(self) -> None:  # noqa: B027 - most backends make new outputs each step
        """Nobody reads the outputs any more: a later step may get them. Called once at most, after `result`."""


class Finished(Pending):
    """Of a backend that runs a step on the caller's thread."""

    done = True

    def __init__(self, output: StepOutput) -> None:
        self._output = output

    def result(self) -> StepOutput:
        return self._output
