"""What one turn of a paired comparison does. Uses public names of `drut` only: it also runs on other checkouts.

A work is written KIND@N:

    step@B     one engine step that decodes B sequences; scheduling does not overlap with it
    decode@B   TOKENS tokens of each of B sequences, from the first token on
    prefill@T  a prompt of T tokens, up to the first token
    serve@U    U streamed requests at once over HTTP, up to the end of the last reply
"""

from __future__ import annotations

import http.client
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import drut

PROMPT, TOKENS, VOCAB = 32, 32, 250  # ids of prompts are below VOCAB
STEPS = 160  # tokens of a sequence of `step@B`
KINDS = ("step", "decode", "prefill", "serve")
DEFAULTS = {"prefix_cache": False, "chunk_tokens": 0}  # prompts are computed whole, each time
READY_S, REPLY_S = 120.0, 120.0

Settings = Mapping[str, Any]


class Turn(NamedTuple):
    """The seconds of a turn, and its output tokens or text: equal on both sides if their bits are equal."""

    seconds: float
    output: Any


class Work(Protocol):
    def turn(self, number: int) -> Turn: ...
    def close(self) -> None: ...


def parse(text: str) -> tuple[str, int]:
    """Parses kind and size. Raises ValueError for an invalid text."""
    kind, _, size = text.partition("@")
    if kind not in KINDS or not size.isdecimal() or not int(size):
        raise ValueError(f"{text!r} is not one of {', '.join(f'{k}@N' for k in KINDS)}")
    return kind, int(size)


def start(work: str, model: str, settings: Settings) -> Work:
    """Loads the model with `settings`, or starts a server with them as flags."""
    kind, size = parse(work)
    if kind == "serve":
        return Serve(model, size, settings)
    if kind == "step":
        settings = {"overlap": False, "multi_step": 1, **settings}
    llm = drut.LLM(model, **{**DEFAULTS, **settings})
    return {"step": Step, "decode": Decode, "prefill": Prefill}[kind](llm, size)


def prompt(number: int, length: int) -> list[int]:
    draw = random.Random(number)
    return [draw.randrange(VOCAB) for _ in range(length)]


def params(tokens: int, choices: int = 1) -> drut.SamplingParams:
    """Returns parameters with a fixed seed, so that the choices of a prompt differ; the end of sequence is ignored.

    The filter is off by name: an older checkout does not take the defaults of the model."""
    return drut.SamplingParams(max_tokens=tokens, n=choices, temperature=1.0, top_p=1.0, seed=7, ignore_eos=True)


class _InProcess:
    """A work with an LLM in this process."""

    def __init__(self, llm: drut.LLM, size: int) -> None:
        self.llm, self.size = llm, size

    def close(self) -> None:
        self.llm.close()


class Prefill(_InProcess):
    def turn(self, number: int) -> Turn:
        ids = prompt(number, self.size)
        begin = time.perf_counter()
        (answer,) = self.llm.generate([ids], params(1))
        return Turn(time.perf_counter() - begin, answer.token_ids)


class Decode(_InProcess):
    def turn(self, number: int) -> Turn:
        tokens: dict[int, list[int]] = {i: [] for i in range(self.size)}
        begin = 0.0
        for chunk in self.llm.stream(prompt(number, PROMPT), params(TOKENS + 1, self.size)):
            tokens[chunk.index] += chunk.token_ids
            if not begin and all(tokens.values()):
                begin = time.perf_counter()
        return Turn(time.perf_counter() - begin, list(tokens.values()))


class Step(_InProcess):
    """Steps of a long answer. When it ends another one begins; the steps of its prompt are not timed."""

    def __init__(self, llm: drut.LLM, size: int) -> None:
        super().__init__(llm, size)
        self._stream: Iterator[drut.Chunk] = iter(())
        self._answers, self._over = 0, True

    def turn(self, number: int) -> Turn:
        if self._over:
            self._begin()
        begin = time.perf_counter()
        ids = self._step()
        return Turn(time.perf_counter() - begin, ids)

    def _begin(self) -> None:
        for _ in self._stream:
            pass
        self._answers += 1
        self._stream = self.llm.stream(prompt(self._answers, PROMPT), params(STEPS, self.size))
        while not all(self._step()):
            pass

    def _step(self) -> list[list[int]]:
        """Runs a step, which returns one chunk for each sequence."""
        chunks = [next(self._stream) for _ in range(self.size)]
        self._over = any(chunk.completion is not None for chunk in chunks)
        return [chunk.token_ids for chunk in chunks]


class Serve:
    """Requests to a `drut serve` of this checkout."""

    def __init__(self, model: str, users: int, settings: Settings) -> None:
        flags = [text for name, value in {**DEFAULTS, **settings}.items() for text in flag(name, value)]
        self._process = subprocess.Popen([sys.executable, "-m", "drut", "serve", model, "--port", "0",
                                          "--served-model-name", "m", "--no-request-log", *flags],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._port = int(self._wait_for(r"listening on http://127\.0\.0\.1:(\d+)"))
        self._wait_for("(ready) after")
        self._pool = ThreadPoolExecutor(users)
        self._users = users

    def _wait_for(self, pattern: str) -> str:
        assert self._process.stderr is not None
        seen = []
        for line in self._process.stderr:
            if found := re.search(pattern, line):
                return found[1]
            seen.append(line)
        raise RuntimeError("drut serve ended: " + "".join(seen[-5:]))

    def turn(self, number: int) -> Turn:
        begin = time.perf_counter()
        replies = list(self._pool.map(self._ask, [number * self._users + i for i in range(self._users)]))
        return Turn(time.perf_counter() - begin, replies)

    def _ask(self, number: int) -> str:
        """Returns the text of a streamed completion."""
        body = json.dumps({"model": "m", "prompt": prompt(number, PROMPT), "max_tokens": TOKENS, "seed": 7,
                           "temperature": 1, "top_p": 1,
                           "stream": True, "ignore_eos": True})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=REPLY_S)
        try:
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            events = connection.getresponse().read().decode().split("\n\n")
        finally:
            connection.close()
        if "data: [DONE]" not in events:
            raise RuntimeError(f"a reply was cut short: {events[-1][:200]}")
        chunks = [json.loads(event[6:]) for event in events if event.startswith("data: {")]
        return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._pool.shutdown()


def flag(name: str, value: Any) -> list[str]:
    """Formats a setting as command-line flags."""
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{dashed}" if value else f"--no-{dashed}"]
    return [f"--{dashed}", str(value)]
