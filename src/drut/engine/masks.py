"""Masks of a step: which ids its guided samples may draw, made while the step's body runs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from drut.constrain.guide import Guide
from drut.kernels.backend import Executable
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.output import StepOutput
from drut.kernels.plan import BEFORE_HEAD


class MaskMaker:
    """One thread, which works while the kernels do and is waited for where the head begins."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._thread = ThreadPoolExecutor(1, "drut-mask")  # which starts with its first task

    def run(self, executable: Executable, step: StepDescriptor, guided: Mapping[int, Guide]) -> StepOutput:
        """Runs a step whose samples have these guides, which then know its tokens."""
        first = step["mask"]
        masks = [(guide, step.mask(int(first[i]), self._vocab)) for i, guide in guided.items()]
        made = self._thread.submit(_fill, masks)

        def host(stop: str) -> None:
            if stop == BEFORE_HEAD:
                made.result()

        try:
            out = executable.run(step, host)
        finally:
            _settle(made)  # nobody fills the masks of a step that failed
        for i, guide in guided.items():
            if out.drawn[i]:
                guide.take(int(out.tokens[i]))
        return out

    def close(self) -> None:
        self._thread.shutdown()


def _fill(masks: list[tuple[Guide, NDArray[np.int32]]]) -> None:
    for guide, mask in masks:
        guide.fill(mask)


def _settle(made: Future[None]) -> None:
    made.exception()
