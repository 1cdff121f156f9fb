"""The runner: fills a step descriptor from the scheduler's work and runs the step by step replay of the recorded
plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from drut.cache.groups import pages_for
from drut.cache.pool import Canary, Changes
from drut.engine.request.params import FilledParams
from drut.engine.schedule.work import ScheduledRequest, StepLimits
from drut.engine.step.grammar_masks import ConstrainedRow, GrammarMasks
from drut.engine.step.inflight import FinishedStep, InflightStep
from drut.kernels import backend as kernels
from drut.kernels.backend import Backend
from drut.kernels.burst import Burst
from drut.kernels.cost import StepShape
from drut.kernels.descriptor import RELAY, Edits, StepDescriptor, mask_words
from drut.kernels.ops import Buffer
from drut.kernels.plan import Plan
from drut.kernels.pool import Pool


class Rows(NamedTuple):
    """The input of canaries for one sequence in a step: its pages by KV group, the tokens before its rows, and the
    tokens
    of its rows."""

    maps: list[list[int]]
    before: list[int]
    tokens: list[int]


class Runner:
    """Owns an executable over one pool per KV group. With `overlap` steps run on a thread of their own, in the order of
    their launch."""

    def __init__(self, backend: Backend, plan: Plan, pools: Sequence[Pool], limits: StepLimits, *,
                 context: int, vocab: int, overlap: bool = False, canaries: Sequence[Canary] = (),
                 slot_groups: int = 0, taps: Buffer | None = None) -> None:
        """`context`: maximum tokens of a sequence; `vocab`: number of ids with logits; `canaries`: one per pool, or
        none; `slot_groups`: number of pools, the last ones, that have one slot per sequence; the others have pages;
        `taps`: a buffer whose rows each step returns, a burst those of its last step."""
        self.plan, self.limits, self.vocab, self._canaries = plan, limits, vocab, canaries
        self._taps = taps
        self._groups, self._paged, self._slot_groups = len(pools), len(pools) - slot_groups, slot_groups
        self.executable = backend.load(plan, pools, kernels.BackendLimits(limits.tokens, limits.samples, limits.seqs))
        # Capacities of descriptors, which grow: sequences that share pages list each of them; most steps have no masks.
        self._blocks, self._edits, self._masks = self._paged * pages_for(context), 1024, 0
        self._mask_maker = GrammarMasks(vocab)
        # With overlap a descriptor is filled while the running step reads another; the third one is spare.
        self._steps = [self._descriptor() for _ in range(3 if overlap else 1)]
        self._turn = 0
        self._last, self.last_seconds = self._steps[0], 0.0  # the step that ran last
        self._thread = ThreadPoolExecutor(1, "drut-step") if overlap else None

    def _descriptor(self) -> StepDescriptor:
        limits = self.limits
        return StepDescriptor(rows=limits.tokens, seqs=limits.seqs, samples=limits.samples, blocks=self._blocks,
                              edits=self._edits, masks=self._masks, groups=self._paged, slot_groups=self._slot_groups)

    @property
    def last_shape(self) -> StepShape:
        """The shape of the step that ran last. Valid until a later launch fills its descriptor again."""
        return self._last.shape()._replace(used_experts=self.executable.used_experts())

    def launch(self, work: Sequence[ScheduledRequest]) -> InflightStep:
        """Launches a step, or a burst if the work has steps `ahead`. Without overlap it is over on return."""
        step, rows, guided = self._fill(work)
        changes = [canary.collect() for canary in self._canaries]
        ahead, logits = work[0].ahead, any(w.request.logits for w in work)
        burst = self._burst(1 + ahead, [sorted(w.request.ends) for w in work], bool(guided)) if ahead else None
        if self._thread is not None:
            return InflightStep(work, self._thread.submit(self._run, step, burst, rows, changes, guided, logits), burst)
        return InflightStep(work, self._run(step, burst, rows, changes, guided, logits), burst)

    def _burst(self, steps: int, ends: Sequence[Sequence[int]], guided: bool) -> Burst:
        """Returns a burst. With constrained requests the host acts in every step, so it is not one native call."""
        return Burst(steps, ends) if guided else self.executable.burst(steps, ends)

    def _run(self, step: StepDescriptor, burst: Burst | None, rows: Sequence[Rows],
             changes: Sequence[Changes], guided: Mapping[int, ConstrainedRow], logits: bool) -> FinishedStep:
        try:
            for group, canary in enumerate(self._canaries):
                self._watch(canary, group, rows if group < self._paged else (), changes[group])
            started, out, pending, steps = time.perf_counter(), None, None, 1
            if burst is None and guided:
                out = self._mask_maker.run(self.executable, step, guided)
            elif burst is None:
                pending = self.executable.launch(step)
                out = pending.result()
            elif guided:
                self._mask_maker.run_burst(self.executable, step, burst, guided)
            else:
                self.executable.run_burst(step, burst)
            if burst is not None:
                steps = burst.progress.done
            seconds = (time.perf_counter() - started) / steps
            self._last, self.last_seconds = step, seconds
            taps = self.executable.rows(self._taps, step.rows).copy() if self._taps is not None else None
            return FinishedStep(out, seconds, self.executable.logits(step.samples).copy() if logits else None, pending,
                                taps)
        finally:
            if burst is not None:
                burst.abandon()

    @staticmethod
    def _watch(canary: Canary, group: int, rows: Sequence[Rows], changes: Changes) -> None:
        canary.settle(changes)
        for r in rows:
            canary.verify(r.maps[group], r.before)
            canary.write(r.maps[group], r.tokens, len(r.before))

    def _fill(self, work: Sequence[ScheduledRequest]) -> tuple[StepDescriptor, list[Rows], dict[int, ConstrainedRow]]:
        """Returns a filled step descriptor, the input of the canaries, and the constrained samples by index."""
        edits = [w.request.edits.along(w.first_draw, w.drafts) if w.draws else [] for w in work]
        masks = sum([w.draws for w in work if w.request.guide is not None])
        step = self._next_descriptor(self._paged * sum([pages_for(w.start + w.rows + w.ahead) for w in work]),
                                     sum([len(e.ids) for each in edits for e in each if e is not None]),
                                     masks * mask_words(self.vocab))
        rows: list[Rows] = []
        guided: dict[int, ConstrainedRow] = {}
        for w, each in zip(work, edits, strict=True):
            request = w.request
            tokens = [*request.next_tokens(w.start, w.rows - len(w.drafts)), *w.drafts]
            pages, *others = request.table.maps[: self._groups]  # behind them are the groups of a drafter
            row = step.add_sequence(tokens, w.start, pages, request.slot, w.ahead, others)
            if w.scores:
                self._score_prompt(step, w, row)
            if w.draws:
                self._draw(step, w, row + w.rows - w.draws, each, guided)
            if self._canaries:
                before = request.tokens[: w.start]
                rows.append(Rows([list(m) for m in request.table.maps], before + [RELAY] * (w.start - len(before)),
                                 tokens + [RELAY] * w.ahead))
        return step, rows, guided

    def _draw(self, step: StepDescriptor, w: ScheduledRequest, first_row: int, edits: Sequence[Edits | None],
              guided: dict[int, ConstrainedRow]) -> None:
        """Adds the samples of `w`, which begin at `first_row`, each after the drafts before it. The last one writes the
        relay slot, from where the next row of the sequence takes its token."""
        request, first = w.request, w.first_draw
        reasoning, guide = request.reasoning, request.guide
        forced = reasoning.forced_along(first, w.drafts) if reasoning is not None else [None] * w.draws
        optimistic = guide is not None and request.params.draws_from_all and not any(f is not None for f in forced)
        for i, (edit, target) in enumerate(zip(edits, forced, strict=True)):
            mask = step.add_mask(self.vocab) if guide is not None else -1
            sample = step.add_sample(first_row + i, request.params, request.seed, request.choice, edits=edit,
                                     mask=-1 if optimistic else mask, target=-1 if target is None else target,
                                     relay=i == w.draws - 1)
            if guide is not None:
                draft = w.drafts[i] if i < len(w.drafts) else None
                guided[sample] = ConstrainedRow(guide, first + i, mask, optimistic, draft)

    @staticmethod
    def _score_prompt(step: StepDescriptor, w: ScheduledRequest, row: int) -> None:
        """Adds samples that compute prompt logprobs: each scores the token after one of the leading rows of `w`."""
        settings = FilledParams(temperature=0.0, logprobs=w.request.params.prompt_logprobs)
        first = w.request.progress.prompt_scored - w.scores  # `Progress.launch` has counted them already
        for position in range(first, first + w.scores):
            step.add_sample(row + position - w.start, settings, target=w.request.tokens[position + 1])

    def _next_descriptor(self, blocks: int, edits: int, masks: int = 0) -> StepDescriptor:
        """Returns the next descriptor in turn, cleared; a larger one if the capacities have grown."""
        if blocks > self._blocks:
            self._blocks = 2 * blocks
        if edits > self._edits:
            self._edits = 2 * edits
        if masks > self._masks:
            self._masks = 2 * masks
        self._turn = (self._turn + 1) % len(self._steps)
        step = self._steps[self._turn]
        if step.room != (self._blocks, self._edits, self._masks):
            step = self._steps[self._turn] = self._descriptor()
        step.clear()
        return step

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        self._mask_maker.close()
