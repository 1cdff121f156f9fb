"""Preemption by chance, as a policy: the exactness tests preempt running requests at random steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drut import LLM
from drut.cache.cache import KvCache
from drut.engine.request.request import Request
from drut.engine.schedule.policy import Policy
from drut.engine.schedule.reserve import Reserve


class ChancePreemption(Policy):
    """Preempts each running request at a step with a probability, in front of what `inner` does."""

    bursts = False

    def __init__(self, inner: Policy, chance: float) -> None:
        super().__init__(inner.clock, inner.aging_s)
        self._inner, self._chance, self._dice = inner, chance, random.Random(0)

    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        return self._inner.order(waiting, running, cache)

    def may_join(self, request: Request) -> bool:
        return self._inner.may_join(request)

    def victim(self, running: Sequence[Request]) -> Request:
        return self._inner.victim(running)

    def victims_for(self, request: Request, running: Sequence[Request], reserve: Reserve) -> list[Request]:
        return self._inner.victims_for(request, running, reserve)

    def preempt_now(self, running: Sequence[Request]) -> list[Request]:
        """Only requests that got a token since they were last admitted: the others must get on."""
        return [r for r in running if r.decoding and r.known > r.prompt_tokens + r.why.preemptions
                and self._dice.random() < self._chance]


def make_llm(model: str | Path, *, preempt: float = 0.0, **settings: Any) -> LLM:
    """An LLM whose running requests are preempted with this chance at each step."""
    llm = LLM(model, **settings)
    if preempt:
        llm.engine.scheduler.policy = ChancePreemption(llm.engine.scheduler.policy, preempt)
    return llm
