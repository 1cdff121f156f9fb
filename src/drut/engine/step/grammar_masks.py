"""Grammar masks: which ids the samples of constrained requests may draw. They are made while the step's layers run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    draft: int | None = None  # the draft that it verifies; the next sample counts only if this one draws the draft


class MaskChain(NamedTuple):
    """The masks of consecutive tokens of one output: of the next one, and of the one after each draft."""

    guide: GrammarMatcher
    masks: Sequence[Mask]
    drafts: Sequence[int]


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
        first = first_samples(guided)
        masked = [self._chain(step, guided, i) for i in first if not guided[i].optimistic]
        lagging = [guided[i] for i in first if guided[i].guide.taken < guided[i].output_index]
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
        while first:  # again from the sample after a draft that the grammar forced
            refused = [i for begin in first if (i := follow(out, guided, begin)) is not None]
            first = self._redraw(executable, step, out, {i: guided[i] for i in refused}) if refused else []
        return out

    def _chain(self, step: StepDescriptor, guided: Mapping[int, ConstrainedRow], first: int) -> MaskChain:
        """Returns what fills the masks of the sample `first` and of those that follow its drafts."""
        masks, drafts, i = [step.mask(guided[first].mask, self._vocab)], list[int](), first
        while (draft := guided[i].draft) is not None:
            i += 1
            drafts.append(draft)
            masks.append(step.mask(guided[i].mask, self._vocab))
        return MaskChain(guided[first].guide, masks, drafts)

    def _redraw(self, executable: Executable, step: StepDescriptor, out: StepOutput,
                guided: Mapping[int, ConstrainedRow]) -> list[int]:
        """Draws these samples again under their grammar masks. Returns the samples after those that drew their
        drafts."""
        self._fill([MaskChain(row.guide, [step.mask(row.mask, self._vocab)], ()) for row in guided.values()])
        refused, places = list(guided), step["mask"]
        places[refused] = [row.mask for row in guided.values()]
        executable.redraw(step, refused)
        places[refused] = -1
        more = []
        for i, row in guided.items():
            if out.drawn[i]:
                row.guide.advance(token := int(out.tokens[i]))
                if token == row.draft:
                    more.append(i + 1)
        return more

    def _fill(self, work: list[MaskChain]) -> None:
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


def first_samples(guided: Mapping[int, ConstrainedRow]) -> list[int]:
    """Returns the samples that follow no draft: one of each sequence."""
    return [i for i in guided if i - 1 not in guided or guided[i - 1].draft is None]


def follow(out: StepOutput, guided: Mapping[int, ConstrainedRow], i: int) -> int | None:
    """Advances the grammar matcher of sample `i` over the tokens that are accepted from there on. Returns the first
    sample that the grammar refuses; None if there is none."""
    while True:
        row, token, status = guided[i], int(out.tokens[i]), int(out.status[i])
        if status == Status.DRAWN and not row.optimistic:
            row.guide.advance(token)
        # NONE_LEFT: logits processors made a logit infinite, and the mask may exclude that very id.
        elif row.optimistic and (status == Status.NONE_LEFT
                                 or (status == Status.DRAWN and not row.guide.try_advance(token))):
            return i
        if status != Status.DRAWN or token != row.draft:
            return None
        i += 1


def _prepare(lagging: Iterable[ConstrainedRow], masked: list[MaskChain],
             notify: Callable[[], None] | None) -> None:
    if notify is not None:
        notify()
    for row in lagging:
        row.guide.catch_up(row.output_index)
    _fill(masked)


def _fill(work: list[MaskChain]) -> None:
    for chain in work:
        chain.guide.fill_along(chain.masks, chain.drafts)
