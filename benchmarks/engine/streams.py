"""Runs requests step by step through an engine, with a time stamp for each token."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from itertools import pairwise

from drut import LLM, Constraint, SamplingParams
from drut.engine.engine import Update
from drut.engine.output_processor import OutputProcessor
from drut.engine.request.request import Request


class Stream:
    """One request. `times`: monotonic seconds at which the caller had its tokens."""

    def __init__(self, answer: OutputProcessor) -> None:
        self.answer = answer
        self.times: list[float] = []

    @property
    def ttft(self) -> float:
        """Returns seconds from its arrival to its first token."""
        return self.times[0] - self.answer.request.arrived

    @property
    def itl(self) -> list[float]:
        """Returns seconds between each token and the previous one."""
        return [after - before for before, after in pairwise(self.times)]


class Driver:
    """Does the work of a server with an engine: takes each step's tokens and detokenizes them at once."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self._streams: dict[Request, Stream] = {}

    def submit(self, prompt: list[int], new_tokens: int, constraint: Constraint | None = None) -> Stream:
        """Queues a greedy request of exactly `new_tokens`, unless the constraint ends it earlier."""
        params = SamplingParams(max_tokens=new_tokens, temperature=0, ignore_eos=True, constraint=constraint)
        (answer,) = self.llm.submit(prompt, params)
        stream = self._streams[answer.request] = Stream(answer)
        return stream

    def step(self) -> list[Update]:
        """Runs one step; returns its updates, which are already in their streams."""
        updates = self.llm.engine.step()
        for update in updates:
            stream = self._streams[update.request]
            if update.token is not None:
                stream.answer.push(update)
                stream.answer.take()
                stream.times.append(time.monotonic())
        return updates

    def stop(self) -> None:
        """Aborts the remaining requests."""
        for request in self._streams:
            self.llm.engine.abort(request)
        self.llm.engine.drain()


def random_prompts(rng: random.Random, llm: LLM, lengths: list[int]) -> list[list[int]]:
    """Returns random token ids: prompts that share no prefix with each other or with earlier ones."""
    return [[rng.randrange(llm.engine.vocab) for _ in range(length)] for length in lengths]


@dataclass
class Decoded:
    """The phase of a batch in which all requests only decode."""

    answers: list[list[int]]  # ids of each request, including those before that phase
    tokens: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


def decode(llm: LLM, prompts: list[list[int]], new_tokens: int, constraint: Constraint | None = None) -> Decoded:
    """Runs requests that arrive together. Counting starts when the last of them has its first token."""
    driver = Driver(llm)
    streams = [driver.submit(prompt, new_tokens, constraint) for prompt in prompts]
    while not all(stream.times for stream in streams):
        driver.step()
    start, tokens = time.monotonic(), 0
    while llm.engine.busy:
        tokens += len(driver.step())
    seconds = max(stream.times[-1] for stream in streams) - start
    answers = [stream.answer.request.output_ids for stream in streams]
    return Decoded(answers, tokens, seconds)
