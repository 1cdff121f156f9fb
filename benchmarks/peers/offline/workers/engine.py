"""Common parts of the workers: requests, and timing of an engine that is driven step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from benchmarks.peers.offline.window import full_batch
from benchmarks.worker import Answer, serve


class Engine(Protocol):
    """One model, which answers the requests of this package."""

    def load(self, model: str, threads: int) -> Answer: ...
    def about(self) -> Answer: ...
    def prefill(self, prompts: list[list[int]]) -> Answer: ...
    def decode(self, prompts: list[list[int]], new_tokens: int) -> Answer: ...


class Stepwise:
    """An engine that takes requests and runs steps."""

    def run(self, prompts: list[list[int]], new_tokens: int) -> tuple[list[list[float]], list[int]]:
        """Returns the times of each prompt's tokens, and its first token."""
        raise NotImplementedError

    def prefill(self, prompts: list[list[int]]) -> Answer:
        seconds, ids = [], []
        for prompt in prompts:
            start = time.perf_counter()
            (times,), (first,) = self.run([prompt], 1)
            seconds.append(times[0] - start)
            ids.append(first)
        return {"seconds": seconds, "ids": ids}

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Answer:
        times, ids = self.run(prompts, new_tokens)
        return {**full_batch(times)._asdict(), "ids": ids}


def answer_for(engine: Engine, **more: Callable[..., Answer]) -> None:
    """Answers requests with `engine`, and with the actions of `more`, until the end of input."""
    serve({"load": engine.load, "about": engine.about, "prefill": engine.prefill, "decode": engine.decode, **more})
