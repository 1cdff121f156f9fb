"""Prompts of drawn lengths, with answers of drawn lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drut.bench.work import Session
from drut.bench.workloads.lengths import FORMS
from drut.bench.workloads.workload import Workload, WorkloadContext
from drut.config import setting


@dataclass(frozen=True)
class Synthetic(Workload):
    name = "synthetic"
    help = "unrelated prompts and answers with exact random lengths; endless"

    input: str = setting("512", f"tokens of a prompt: {FORMS}")
    output: str = setting("128", "tokens of an answer, in the same forms")

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        inputs, outputs, texts = self.lengths("input"), self.lengths("output"), context.texts

        def make() -> Iterator[Session]:
            i = 0
            while True:
                rng = context.rng(i)
                n, answer = inputs.draw(rng), outputs.draw(rng)
                yield Session(f"{self.name}-{i}", [context.ask(texts.text(n, i), answer, tokens=n, exact=True)])
                i += 1

        return make()
