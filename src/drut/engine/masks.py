"""Masks of a step: which ids its guided samples may draw, made while the step's body runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.constrain.guide import Guide
from drut.kernels.backend import Executable
from drut.kernels.burst import Burst
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.output import StepOutput
from drut.kernels.plan import BEFORE_HEAD


class Guided(NamedTuple):
    """A sample's guide, and how many tokens the answer has when it is drawn."""

    guide: Guide
    outputs: int


class MaskMaker:
    """One thread, which works while the kernels do and is waited for where the head begins."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._thread = ThreadPoolExecutor(1, "drut-mask")  # which starts with its first task

    def run_burst(self, executable: Executable, step: StepDescriptor, burst: Burst,
                  guided: Mapping[int, Guided]) -> None:
        """Runs `step` and those after it, as `Executable.run_burst` does, until a guide breaks off."""
        out = self.run(executable, step, guided).copy()
        while not burst.last(out) and not any(who.guide.breaks_off for who in guided.values()):
            step.advance()
            out = self.run(executable, step, guided, partial(burst.put, out, over=False)).copy()
        burst.put(out, over=True)

    def run(self, executable: Executable, step: StepDescriptor, guided: Mapping[int, Guided],
            tell: Callable[[], None] | None = None) -> StepOutput:
        """Runs a step whose samples have these guides, which then know its tokens. `tell` is called meanwhile: whom it
        wakes keeps nobody from starting the kernels."""
        first = step["mask"]
        masks = [(who, step.mask(int(first[i]), self._vocab)) for i, who in guided.items()]
        made = self._thread.submit(_fill, masks, tell)

        def host(stop: str) -> None:
            if stop == BEFORE_HEAD:
                made.result()

        try:
            out = executable.run(step, host)
        finally:
            _settle(made)  # nobody fills the masks of a step that failed
        for i, who in guided.items():
            if out.drawn[i]:
                who.guide.take(int(out.tokens[i]))
        return out

    def close(self) -> None:
        self._thread.shutdown()


def _fill(masks: list[tuple[Guided, NDArray[np.int32]]], tell: Callable[[], None] | None) -> None:
    if tell is not None:
        tell()
    for (guide, outputs), mask in masks:
        guide.catch_up(outputs)
        guide.fill(mask)


def _settle(made: Future[None]) -> None:
    made.exception()
