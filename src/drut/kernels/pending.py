"""A launched step and its outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod

from drut.kernels.output import StepOutput


class Pending(ABC):
    """A launched step. It owns its outputs: no later step writes to them before `release`."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """True if `result` would not wait."""

    @abstractmethod
    def result(self) -> StepOutput:
        """Waits for the step and returns its outputs, the same at every call. Raises the error of the step."""

    def release(self) -> None:  # noqa: B027 - most backends make new outputs each step
        """Lets a later step reuse the outputs, which must not be read any more. Call at most once, after `result`."""


class Finished(Pending):
    """A step that ran on the caller's thread."""

    done = True

    def __init__(self, output: StepOutput) -> None:
        self._output = output

    def result(self) -> StepOutput:
        return self._output
