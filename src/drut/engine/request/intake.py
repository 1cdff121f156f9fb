"""Makes requests: checks prompts and parameters against the model and the cache, and creates the state of each
choice."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from drut.cache.cache import KvCache
from drut.constrain.grammar_compiler import NO_TEXT, GrammarCompiler
from drut.constrain.grammar_matcher import GrammarMatcher
from drut.constrain.reasoning import ReasoningTracker
from drut.engine.request.checks import check_ids, check_prompt
from drut.engine.request.grammar_wait import GrammarWait
from drut.engine.request.logits_processors import LogitsProcessors
from drut.engine.request.params import FilledParams, SamplingParams
from drut.engine.request.progress import Progress
from drut.engine.request.request import Request
from drut.errors import RequestError

MASK64 = 0xFFFFFFFFFFFFFFFF


class Intake:
    """Makes requests and numbers them in the order of their arrival."""

    def __init__(self, cache: KvCache, *, vocab: int, context: int, eos_ids: frozenset[int],
                 grammars: GrammarCompiler | None, defaults: SamplingParams) -> None:
        """`grammars`: None if no constraint can be served; `defaults`: the model's, for fields that a request does not
        set."""
        self._cache, self._vocab, self._context = cache, vocab, context
        self._eos_ids, self._grammars, self._arrivals, self.defaults = eos_ids, grammars, 0, defaults

    @property
    def room(self) -> int:
        """The maximum number of tokens of a prompt and its output together: the context, or less if the KV cache is
        smaller."""
        return self._cache.room(self._context)

    @property
    def bound(self) -> str:
        """The name of what limits `room`, for errors."""
        return "context" if self.room == self._context else "KV cache"

    def requests(self, tokens: Sequence[int], params: SamplingParams, *, name: str, priority: int, salt: str,
                 reasoning: ReasoningTracker | None) -> list[Request]:
        """Returns one request per choice; `reasoning` tracks `params.reasoning`, and each choice has a fork of it.

        Raises RequestError if the prompt is empty, has an id outside the vocabulary, or can never fit."""
        params = params.filled(self.defaults)
        check_prompt(tokens, self._vocab)
        check_ids("logit_bias", params.logit_bias or (), self._vocab)
        check_ids("stop_token_ids", params.stop_token_ids, self._vocab)
        if (reasoning is None) != (params.reasoning is None):
            raise ValueError("params.reasoning and its tracker must be passed together")
        check_ids("reasoning.closing", reasoning.closing if reasoning is not None else (), self._vocab)
        if len(tokens) >= self.room:
            raise RequestError(
                f"the prompt has {len(tokens)} tokens; the {self.bound} of {self.room} leaves no room for an answer")
        limit = min(len(tokens) + params.max_tokens, self.room)
        seed = secrets.randbits(63) if params.seed is None else params.seed & MASK64
        made: list[Request] = []
        for choice in range(params.n):
            request = self._request(tokens, params, name, limit)
            request.seed, request.choice, request.priority = seed, choice, priority
            request.first_choice = made[0] if made else None
            request.table = self._cache.table(salt)
            request.reasoning = reasoning and reasoning.fork()
            request.guide = self._guide(params, reasoning)
            request.blockers = [GrammarWait(request.guide)] if request.guide is not None else []
            made.append(request)
        return made

    def logits_request(self, tokens: Sequence[int], chunk: int) -> Request:
        """Returns a request for the logits of every prompt position, at most `chunk` rows per step."""
        check_prompt(tokens, self._vocab)
        if len(tokens) > self.room:
            raise RequestError(f"{len(tokens)} tokens do not fit the {self.bound} of {self.room}")
        request = self._request(tokens, FilledParams(max_tokens=1, ignore_eos=True), "", len(tokens) + 1)
        request.table = self._cache.table()
        request.logits, request.chunk = True, max(1, chunk)
        return request

    def _request(self, tokens: Sequence[int], params: FilledParams, name: str, limit: int) -> Request:
        self._arrivals += 1
        ends = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos_ids)
        edits = LogitsProcessors(params, tokens, (*self._eos_ids, *params.stop_token_ids))
        return Request(id=name or f"r{self._arrivals}", progress=Progress(tokens), params=params, limit=limit,
                       arrived=time.monotonic(), order=self._arrivals, edits=edits, ends=ends)

    def _guide(self, params: SamplingParams, reasoning: ReasoningTracker | None) -> GrammarMatcher | None:
        if params.constraint is None:
            return None
        if self._grammars is None:
            raise RequestError(f"constraint: {NO_TEXT}")
        return self._grammars.guide(params.constraint, reasoning, ignore_eos=params.ignore_eos)
