"""Masks of a step: which ids its guided samples may draw, made while the step's body runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import NamedTuple

from drut.constrain.guide import Guide, Mask
from drut.kernels.backend import Executable
from drut.kernels.burst import Burst
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.output import Status, StepOutput
from drut.kernels.plan import BEFORE_HEAD


class Guided(NamedTuple):
    """A sample's guide, and how many tokens the answer has when it is drawn."""

    guide: Guide
    outputs: int
    mask: int  # where its mask lies in the step
    late: bool  # whether it is drawn from all ids first, and again under the mask where the grammar says no


class MaskMaker:
    """One thread, which works while the kernels do and is waited for where the head begins.

    A mask looks at every id, of which one is drawn. So where nothing but the grammar takes ids out, the sample is drawn
    from all of them, and the grammar is asked about that one: if it may come, it is also what the mask would have left
    to be drawn, for the highest of all is the highest of any part that it is in. Only where it may not is a mask made.
    """

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._thread = ThreadPoolExecutor(1, "drut-mask")  # which starts with its first task

    def run_burst(self, executable: Executable, step: StepDescriptor, burst: Burst,
                  guided: Mapping[int, Guided]) -> None:
        """Runs `step` and those after it, as `Executable.run_burst` does, until a guide breaks off."""
        out = self.run(executable, step, guided)
        while not burst.last(out) and not any(who.guide.needs_host for who in guided.values()):
            step.advance()
            out = self.run(executable, step, guided, partial(burst.put, out, over=False))
        burst.put(out, over=True)

    def run(self, executable: Executable, step: StepDescriptor, guided: Mapping[int, Guided],
            tell: Callable[[], None] | None = None) -> StepOutput:
        """Runs a step whose samples have these guides, which then know its tokens. `tell` is called meanwhile: whom it
        wakes finds the kernels running, or about to."""
        early = [(who.guide, step.mask(who.mask, self._vocab)) for who in guided.values() if not who.late]
        behind = [who for who in guided.values() if who.guide.taken < who.outputs]
        made = self._thread.submit(_prepare, behind, early, tell) if early or behind else None
        if made is None and tell is not None:
            tell()

        def host(stop: str) -> None:
            if made is not None and stop == BEFORE_HEAD:
                made.result()

        try:
            out = executable.run(step, host if early else None)
        finally:
            if made is not None:
                wait([made])  # nobody fills the masks of a step that failed
        if made is not None:
            made.result()
        status, tokens = out.status.tolist(), out.tokens.tolist()
        refused = []
        for i, who in guided.items():
            if not who.late:
                if status[i] == Status.DRAWN:
                    who.guide.advance(tokens[i])
            # Where edits made a logit infinite there is no token, and a mask may take out that very id.
            elif status[i] == Status.NONE_LEFT or (status[i] == Status.DRAWN and not who.guide.try_advance(tokens[i])):
                refused.append(i)
        if refused:
            self._redraw(executable, step, out, {i: guided[i] for i in refused})
        return out

    def _redraw(self, executable: Executable, step: StepDescriptor, out: StepOutput,
                guided: Mapping[int, Guided]) -> None:
        """Draws these samples again, under their masks."""
        self._fill([(who.guide, step.mask(who.mask, self._vocab)) for who in guided.values()])
        refused, places = list(guided), step["mask"]
        places[refused] = [who.mask for who in guided.values()]
        executable.redraw(step, refused)
        places[refused] = -1
        for i, who in guided.items():
            if out.drawn[i]:
                who.guide.advance(int(out.tokens[i]))

    def _fill(self, work: list[tuple[Guide, Mask]]) -> None:
        """Half of the masks on either thread: the kernels have nothing to do."""
        others = [self._thread.submit(_fill, work[1::2])] if len(work) > 1 else []
        try:
            _fill(work[::2])
        finally:
            wait(others)  # nobody fills the masks of a step that failed
        for other in others:
            other.result()

    def close(self) -> None:
        self._thread.shutdown()


def _prepare(behind: Iterable[Guided], early: list[tuple[Guide, Mask]], tell: Callable[[], None] | None) -> None:
    if tell is not None:
        tell()
    for who in behind:
        who.guide.catch_up(who.outputs)
    _fill(early)


def _fill(work: list[tuple[Guide, Mask]]) -> None:
    for guide, mask in work:
        guide.fill(mask)
