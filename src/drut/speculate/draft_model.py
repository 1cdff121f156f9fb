"""A draft model: a small causal language model with the same token ids, whose samples are the drafts.

It runs on the target's backend as a plan of its own. Its keys and values are KV groups of the target's cache, so pages,
block tables and shared prefixes are the same. A proposal first computes the rows that the model lacks (catch-up), and
then one token of each sequence per step. Rows of drafts that were not accepted are overwritten later.

It samples as the engine does, with the same noise of seed, position and token id: then the two draw the same token with
a probability of at least (1 - d) / (1 + d), where d is the total variation distance of their distributions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drut.cache.cache import KvCache
from drut.cache.groups import pages_for
from drut.kernels.backend import Executable
from drut.kernels.cost import StepShape
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.output import Status
from drut.kernels.predictor import Predictor
from drut.speculate.coverage import Coverage
from drut.speculate.drafter import DraftInput, DraftSampling, ModelDrafter, VerifiedDrafts

STALL = 1.0  # maximum time of catch-up rows while other sequences decode, in times of their decode step
MIN_ROWS = 16  # minimum catch-up rows in a proposal, whatever the prediction


class GreedySettings(NamedTuple):
    """The settings of a sequence whose sampling is unknown."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = -1


GREEDY = DraftSampling(GreedySettings(), 0, 0, lambda drafts: None)


class DrafterLimits(NamedTuple):
    """The maximum rows and sequences of a drafter's step, and the maximum length of a sequence."""

    rows: int
    seqs: int
    context: int


@dataclass
class Job:
    """One sequence of a proposal: `stored` rows are there, up to `drafts_wanted` tokens are drafted."""

    given: DraftInput
    stored: int
    drafts_wanted: int
    end: int  # rows that are needed before the first draft
    drafts: list[int] = field(default_factory=list)
    rows: int = 0  # of the first step

    @property
    def tokens(self) -> Sequence[int]:
        return self.given.tokens

    @property
    def lag(self) -> int:
        return self.end - self.stored

    @property
    def sampling(self) -> DraftSampling:
        return self.given.sampling or GREEDY


class DraftModel(ModelDrafter):
    """Owns the executable of the draft model and knows which rows it has stored. For the engine's thread only."""

    def __init__(self, executable: Executable, cache: KvCache, groups: range, limits: DrafterLimits, *,
                 predictor: Predictor, target: Predictor) -> None:
        """`groups`: the numbers of its KV groups in `cache`, all of full context; `predictor`: of its steps; `target`:
        of the steps of the model that verifies."""
        self._executable, self._cache, self._groups, self._limits = executable, cache, groups, limits
        self._predictor, self._target = predictor, target
        self._coverage = Coverage(cache.pools[groups.start], groups.start)
        self._streams = 1
        self._step = self._descriptor(64, 64)

    def pace(self, streams: int) -> None:
        self._streams = streams

    def propose(self, inputs: Sequence[DraftInput]) -> list[Sequence[int]]:
        jobs = {given.sequence: job for given in inputs if (job := self._job(given)) is not None}
        first = self._scheduled(list(jobs.values()))
        drafting = self._advance(first, [job.rows for job in first])
        while drafting := [job for job in drafting if len(job.drafts) < job.drafts_wanted]:
            drafting = self._advance(drafting, [1] * len(drafting))
        for job in first:
            self._store(job)
        return [jobs[given.sequence].drafts if given.sequence in jobs else () for given in inputs]

    def _store(self, job: Job) -> None:
        """Records the rows that a job has stored."""
        self._coverage.store(job.given, job.stored + job.rows, job.drafts[:-1])

    def seconds(self, drafts: int, sequences: int, context: int) -> float:
        each = self._predictor.seconds(StepShape.over([(1, context)] * sequences, sequences))
        return drafts * each

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        """The tokens show at the next proposal which drafts were accepted."""

    def forget(self, sequence: int) -> None:
        self._coverage.forget(sequence)

    def method(self, sequence: int) -> str:
        return "draft"

    def _job(self, given: DraftInput) -> Job | None:
        """Returns the job of a sequence; None if it has no room. Takes pages for its rows, without preemption."""
        known = len(given.tokens)
        wanted = min(given.max_drafts, self._limits.context - known)
        if wanted <= 0 or given.table is None:
            return None
        if not self._cache.reserve(given.table, known + wanted - 1):
            wanted = 1
            if not self._cache.reserve(given.table, known):
                return None
        return Job(given, self._coverage.rows(given), wanted, known)

    def _scheduled(self, jobs: list[Job]) -> list[Job]:
        """Chooses the rows of the first step, of the shortest lags first: so a long prompt delays no other sequence.
        No two sequences fill the same page of a shared prefix."""
        jobs.sort(key=lambda job: job.lag)
        left, chosen, filling = self._limits.rows, list[Job](), set[int]()
        for job in jobs[: self._limits.seqs]:
            table = job.given.table
            assert table is not None
            page = table.maps[self._groups.start][job.stored // PAGE_TOKENS]
            if left == 0 or page in filling:
                continue
            job.rows = min(job.lag, left)
            if job.lag > MIN_ROWS and self._streams > 1:
                job.rows = min(job.rows, self._catch_up_rows(job, chosen))
            if job.rows:
                filling.add(page)
                chosen.append(job)
                left -= job.rows
        return chosen

    def _catch_up_rows(self, job: Job, chosen: Sequence[Job]) -> int:
        """Returns how many rows of a long lag may be computed while other sequences wait."""
        context = len(job.tokens)
        usual_s = self._target.seconds(StepShape.over([(1, context)] * self._streams, self._streams))
        shape = StepShape.over([(each.rows, each.stored + each.rows) for each in chosen], len(chosen))
        spent = sum(each.rows for each in chosen if each.lag > MIN_ROWS)
        fit = self._predictor.rows_within(shape, job.stored, STALL * usual_s, job.lag)
        return max(fit, MIN_ROWS - spent, 0)

    def _advance(self, jobs: Sequence[Job], rows: Sequence[int]) -> list[Job]:
        """Computes the next rows of each job, and drafts a token of those that have caught up. Returns these."""
        if not jobs:
            return []
        edits = [job.sampling.edits(job.drafts) for job in jobs]
        step = self._cleared(sum(pages_for(job.stored + job.rows + len(job.drafts)) for job in jobs),
                             sum(len(e.ids) for e in edits if e is not None))
        drawing = []
        for slot, (job, count, edit) in enumerate(zip(jobs, rows, edits, strict=True)):
            start = job.stored if not job.drafts else len(job.tokens) + len(job.drafts) - 1
            tokens = job.drafts[-1:] or job.tokens[start : start + count]
            maps = [job.given.table.maps[group] for group in self._groups]  # type: ignore[union-attr]
            row = step.add_sequence(tokens, start, maps[0], slot, others=maps[1:])
            if start + count >= len(job.tokens):
                sampling = job.sampling
                step.add_sample(row + count - 1, sampling.settings, sampling.seed, sampling.choice, edits=edit)
                drawing.append(job)
        for job, token, status in zip(drawing, *self._run(step), strict=True):
            if status == Status.DRAWN:
                job.drafts.append(token)
            else:
                job.drafts_wanted = len(job.drafts)
        return drawing

    def _run(self, step: StepDescriptor) -> tuple[list[int], list[int]]:
        """Runs a step and returns the tokens of its samples, and how each was drawn."""
        started = time.perf_counter()
        pending = self._executable.launch(step)
        out = pending.result()
        drawn = out.tokens.tolist(), out.status.tolist()
        pending.release()
        shape = step.shape()._replace(used_experts=self._executable.used_experts())
        self._predictor.observe(shape, time.perf_counter() - started)
        return drawn

    def _cleared(self, blocks: int, edits: int) -> StepDescriptor:
        """Returns the descriptor, empty; a larger one if these capacities are more than it has."""
        blocks *= len(self._groups)
        had_blocks, had_edits, _ = self._step.room
        if blocks > had_blocks or edits > had_edits:
            self._step = self._descriptor(max(had_blocks, 2 * blocks), max(had_edits, 2 * edits))
        self._step.clear()
        return self._step

    def _descriptor(self, blocks: int, edits: int) -> StepDescriptor:
        limits = self._limits
        return StepDescriptor(rows=limits.rows, seqs=limits.seqs, samples=limits.seqs, blocks=blocks, edits=edits,
                              groups=len(self._groups))
