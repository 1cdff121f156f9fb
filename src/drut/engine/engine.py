"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from drut.cache.pool import PagePool
from drut.engine.params import SamplingParams
from drut.engine.request import Request
from drut.engine.runner import Runner, Work
from drut.errors import RequestError
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.ops import F32


class Engine:
    """First come, first served. A request holds the pages of its whole length from admission on."""

    def __init__(self, runner: Runner, pool: PagePool, *, vocab: int, context: int, eos_ids: frozenset[int]) -> None:
        self.runner, self.pool = runner, pool
        self.vocab, self.context, self.eos_ids = vocab, context, eos_ids
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    @property
    def room(self) -> int:
        """Tokens that a request may have in all: what the model's context and the whole pool hold."""
        return min(self.context, self.pool.total * PAGE_TOKENS)

    def submit(self, tokens: Sequence[int], params: SamplingParams) -> Request:
        """Queues a prompt. RequestError if it is empty, has an id outside the vocabulary, or can never fit."""
        self._check(tokens)
        room = self.room
        if len(tokens) >= room:
            where = "context" if room == self.context else "KV cache"
            raise RequestError(f"the prompt has {len(tokens)} tokens; the {where} of {room} leaves no room for an answer")
        seed = secrets.randbits(63) if params.seed is None else params.seed & 0xFFFFFFFFFFFFFFFF
        limit = min(len(tokens) + params.max_tokens, room)
        request = Request(len(tokens), list(tokens), params, seed, limit, time.monotonic())
        self.waiting.append(request)
        return request

    def abort(self, request: Request) -> None:
        """Ends a request wherever it is. Does nothing if it has ended."""
        if request.finish_reason is None:
            if request in self.waiting:
                self.waiting.remove(request)
            self._finish(request, "abort")

    def step(self) -> list[tuple[Request, int]]:
        """Computes one step; returns each new token with its request. Empty only when nothing is left to do."""
        self._admit()
        work = self._choose()
        if not work:
            return []
        out = self.runner.run(work)
        now = time.monotonic()
        new: list[tuple[Request, int]] = []
        sampled = iter(zip(out.tokens.tolist(), out.finite.tolist(), strict=True))
        for request, count, sample in work:
            request.computed += count
            if sample:
                token, finite = next(sampled)
                if not finite:
                    self._finish(request, "error")
                    continue
                new.append((request, token))
                self._accept(request, token, now)
        return new

    def finish(self, request: Request, reason: str) -> None:
        """Ends a running request for a reason found outside, as a stop string."""
        if request.finish_reason is None:
            self._finish(request, reason)

    def logits(self, tokens: Sequence[int], chunk: int = 64) -> F32:
        """Raw logits of every position, float32 (len(tokens), vocab), through the ordinary steps."""
        self._check(tokens)
        pages = self.pool.take(-(-len(tokens) // PAGE_TOKENS)) if len(tokens) <= self.context else None
        if pages is None:
            raise RequestError(f"{len(tokens)} tokens do not fit the context of {self.context} or the KV cache")
        try:
            return self.runner.logits(tokens, pages, chunk)
        finally:
            self.pool.give_back(pages)

    def _check(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise RequestError("the prompt is empty")
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise RequestError("a prompt of token ids must be a list of integers")
        outside = (ids < 0) | (ids >= self.vocab)
        if outside.any():
            raise RequestError(f"token id {ids[outside][0]} is outside the vocabulary of {self.vocab}")

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.runner.samples:
            request = self.waiting[0]
            pages = self.pool.take(-(-request.limit // PAGE_TOKENS))
            if pages is None:
                return
            request.pages = pages
            self.running.append(self.waiting.popleft())

    def _choose(self) -> list[Work]:
        """Decoding rows first, then prompt chunks, within one token budget."""
        budget, work = self.runner.rows, []
        for request in sorted(self.running, key=lambda r: r.pending > 1):
            count = min(request.pending, budget)
            if count:
                work.append(Work(request, count, count == request.pending))
                budget -= count
        return work

    def _accept(self, request: Request, token: int, now: float) -> None:
        request.tokens.append(token)
        if request.first_token_at is None:
            request.first_token_at = now
        if token in self.eos_ids and not request.params.ignore_eos:
            self._finish(request, "stop")
        elif len(request.tokens) >= request.limit:
            self._finish(request, "length")

    def _finish(self, request: Request, reason: str) -> None:
        request.finish_reason = reason
        request.finished_at = time.monotonic()
        if request in self.running:
            self.running.remove(request)
        self.pool.give_back(request.pages)
        request.pages = []
