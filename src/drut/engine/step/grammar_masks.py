"""Grammar masks: which ids the samples of constrained requests may draw. They are made while the step's layers run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import NamedTuple

from drut.constrain.grammar_matcher import GrammarMatcher, Mask
from drut.kernels.backend import Executable
from drut.kernels.burst import Burst
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.output import Status, StepOutput
from drut.kernels.plan import BEFORE_HEAD


class ConstrainedRow(NamedTuple):
    """A sample of a constrained request."""

    guide: GrammarMatcher  # the grammar matcher of the request
    output_index: int  # of the token that the sample draws
    mask: int  # offset of its mask in the step descriptor
    optimistic: bool  # drawn from all ids first, and again under its mask only if the grammar rejects the token


class GrammarMasks:
    """Fills grammar masks on a thread of its own while the kernels run. The step waits for it before the head.

    A mask tests every id, but only one is drawn. So if only the grammar excludes ids, the sample is first drawn from
    all ids, and the grammar tests that one token. If it is allowed, it is also the token that the mask would give: the
    maximum over all ids is the maximum over every subset that contains it. Only a rejected token takes a mask and a
    second draw.
    """

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._thread = ThreadPoolExecutor(1, "drut-mask")  # starts at the first task

    def run_burst(self, executable: Executable, step: StepDescriptor, burst: Burst,
                  guided: Mapping[int, ConstrainedRow]) -> None:
        """Runs a burst like `Executable.run_burst`, until it ends or a grammar matcher needs the host."""
        out = self.run(executable, step, guided)
        while not burst.last(out) and not any(row.guide.needs_host for row in guided.values()):
            step.advance()
            out = self.run(executable, step, guided, partial(burst.put, out, over=False))
        burst.put(out, over=True)

    def run(self, executable: Executable, step: StepDescriptor, guided: Mapping[int, ConstrainedRow],
            notify: Callable[[], None] | None = None) -> StepOutput:
        """Runs a step in which the samples `guided` are constrained, and advances their grammar matchers.

        `notify` is called once while the kernels run, or just before they start; it wakes the engine's thread.
        Threads: the mask thread and the kernels run at the same time. The kernels wait before the head until the masks
        are complete.
        """
        masked = [(row.guide, step.mask(row.mask, self._vocab)) for row in guided.values() if not row.optimistic]
        lagging = [row for row in guided.values() if row.guide.taken < row.output_index]
        made = self._thread.submit(_prepare, lagging, masked, notify) if masked or lagging else None
        if made is None and notify is not None:
            notify()

        def host(stop: str) -> None:
            if made is not None and stop == BEFORE_HEAD:
                made.result()

        try:
            out = executable.run(step, host if masked else None)
        finally:
            if made is not None:
                wait([made])  # no thread may write to the masks of a step that has failed
        if made is not None:
            made.result()
        status, tokens = out.status.tolist(), out.tokens.tolist()
        refused = []
        for i, row in guided.items():
            if not row.optimistic:
                if status[i] == Status.DRAWN:
                    row.guide.advance(tokens[i])
            # NONE_LEFT: logits processors made a logit infinite, and the mask may exclude that very id.
            elif status[i] == Status.NONE_LEFT or (status[i] == Status.DRAWN and not row.guide.try_advance(tokens[i])):
                refused.append(i)
        if refused:
            self._redraw(executable, step, out, {i: guided[i] for i in refused})
        return out

    def _redraw(self, executable: Executable, step: StepDescriptor, out: StepOutput,
                guided: Mapping[int, ConstrainedRow]) -> None:
        """Draws these samples again under their grammar masks."""
        self._fill([(row.guide, step.mask(row.mask, self._vocab)) for row in guided.values()])
        refused, places = list(guided), step["mask"]
        places[refused] = [row.mask for row in guided.values()]
        executable.redraw(step, refused)
        places[refused] = -1
        for i, row in guided.items():
            if out.drawn[i]:
                row.guide.advance(int(out.tokens[i]))

    def _fill(self, work: list[tuple[GrammarMatcher, Mask]]) -> None:
        """Fills half of the masks on each of the two threads, while no kernel runs."""
        others = [self._thread.submit(_fill, work[1::2])] if len(work) > 1 else []
        try:
            _fill(work[::2])
        finally:
            wait(others)  # no thread may write to the masks of a step that has failed
        for other in others:
            other.result()

    def close(self) -> None:
        self._thread.shutdown()


def _prepare(lagging: Iterable[ConstrainedRow], masked: list[tuple[GrammarMatcher, Mask]],
             notify: Callable[[], None] | None) -> None:
    if notify is not None:
        notify()
    for row in lagging:
        row.guide.catch_up(row.output_index)
    _fill(masked)


def _fill(work: list[tuple[GrammarMatcher, Mask]]) -> None:
    for guide, mask in work:
        guide.fill(mask)
