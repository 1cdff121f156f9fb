"""A long text with one fact in it, and a question about the fact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drut.bench.work import Session
from drut.bench.workloads.workload import Workload, WorkloadContext, WorkloadSource
from drut.config import setting
from drut.errors import RequestError

_CITIES = ("Ashford", "Bergen", "Cadiz", "Delft", "Evora", "Fargo", "Genoa", "Hobart", "Izmir", "Jaipur", "Kyoto")
_OPENING = "Somewhere in this text stands the secret number of a city."
_LINES = 30_000


@dataclass(frozen=True)
class LongContext(Workload):
    name = "long-context"
    help = "Shakespeare with a secret number hidden in it, to an exact length, and the question for it; endless"
    source = WorkloadSource("Tiny Shakespeare", "https://github.com/karpathy/char-rnn", "public domain")

    input: str = setting("8192", "tokens of the whole prompt, as a length or distribution (see synthetic)")
    depth: float | None = setting(None, "position of the number, 0 the start, 1 the end (default: drawn at random)",
                                  type=float, least=0.0, most=1.0)
    max_tokens: int = setting(64, "maximum tokens of the answer", type=int, least=1, most=1 << 20)

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        inputs = self.lengths("input")
        context.need_tokenizer()

        def make() -> Iterator[Session]:
            i = 0
            while True:
                n = inputs.draw(context.rng(i))
                yield Session(f"{self.name}-{i}", [context.ask(self._prompt(context, n, i), self.max_tokens, tokens=n)])
                i += 1

        return make()

    def _prompt(self, context: WorkloadContext, n: int, i: int) -> str:
        texts, rng = context.texts, context.rng(i, 1)
        city, secret = _CITIES[rng.integers(len(_CITIES))], rng.integers(10_000, 100_000)
        start = int(rng.integers(_LINES))
        depth = float(rng.random()) if self.depth is None else self.depth
        needle = f" The secret number of {city} is {secret}."
        question = f" What is the secret number of {city}? Answer with the number alone."
        fixed = texts.tokenizer.count(_OPENING) + texts.added(needle) + texts.added(question)
        if n < fixed + 2:
            raise RequestError(f"workload {self.name!r}: {n} tokens of input are too few; the question takes {fixed}")

        def make(target: int) -> str:
            before = int((target - fixed) * depth)
            above = texts.passage(before, start, i, 0)
            below = texts.passage(target - fixed - before, start + _LINES // 2, i, 1)
            return _OPENING + above + needle + below + question

        return texts.exact(make, n)
