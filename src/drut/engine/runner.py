"""Runs steps: fills the step descriptor from what the scheduler chose and hands it to the backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from drut.cache.pool import PagePool
from drut.engine.params import SamplingParams
from drut.engine.request import Request
from drut.kernels.backend import Backend, Limits, StepOutput
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.ops import F32
from drut.kernels.plan import Plan

LOGITS_ROWS = 64  # samples of one step when every row's logits are wanted
GREEDY = SamplingParams(max_tokens=1)


class Work(NamedTuple):
    """Rows of one request in a step: `count` tokens from `computed` on; whether the last one is sampled."""

    request: Request
    count: int
    sample: bool


class Runner:
    """One executable over one pool, and the descriptor that drives it."""

    def __init__(self, backend: Backend, plan: Plan, pool: PagePool, *, rows: int, context: int) -> None:
        """`rows` bounds the tokens of a step; `context` the tokens of a sequence."""
        samples = max(LOGITS_ROWS, rows if rows < 256 else 256)
        self.rows, self.samples, self.pool = rows, samples, pool
        self.executable = backend.load(plan, pool.memory, Limits(rows, samples, relay_slots=samples))
        pages = -(-context // PAGE_TOKENS)
        blocks = min(pool.total + rows, samples * pages)
        self._step = StepDescriptor(rows, samples, samples, max(blocks, pages))

    def run(self, work: Sequence[Work]) -> StepOutput:
        """One step. The samples of the output are those of `work` that asked for one, in order."""
        step = self._step
        step.clear()
        for slot, (request, count, sample) in enumerate(work):
            start = request.computed
            tokens = request.tokens[start : start + count]
            self.pool.verify(request.pages, request.tokens[:start])
            self.pool.stamp(request.pages, tokens, start)
            row = step.add_sequence(tokens, start, request.pages, slot)
            if sample:
                step.add_sample(row + count - 1, request.params, request.seed)
        return self.executable.run(step)

    def logits(self, tokens: Sequence[int], pages: Sequence[int], chunk: int) -> F32:
        """Logits of every position of `tokens`, (len(tokens), vocab), `chunk` positions a step."""
        parts = []
        chunk = min(chunk, self.samples, self.rows)
        for start in range(0, len(tokens), chunk):
            part = tokens[start : start + chunk]
            self._step.clear()
            row = self._step.add_sequence(part, start, pages, 0)
            for i in range(len(part)):
                self._step.add_sample(row + i, GREEDY)
            self.executable.run(self._step)
            parts.append(self.executable.logits(len(part)).copy())
        return np.concatenate(parts)
