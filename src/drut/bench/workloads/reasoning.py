"""Lengths of the traffic of a reasoning model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from drut.bench.work import Session
from drut.bench.workloads.packed import read_jsonl
from drut.bench.workloads.workload import Workload, WorkloadContext, WorkloadSource
from drut.config import setting


@dataclass(frozen=True)
class ReasoningWorkload(Workload):
    name = "reasoning"
    help = "lengths as users of DeepSeek-R1 had them, input and output drawn apart; unrelated prompts, endless"
    source = WorkloadSource("ServeGen, DeepSeek-R1 lengths", "https://github.com/alibaba/ServeGen", "Apache-2.0")

    hour: str = setting("all", "which six hours of the day, from this hour on, or all of them alike",
                        choices=("all", "0", "6", "12", "18"))
    max_input: int | None = setting(None, "maximum tokens of a prompt (default: as drawn)", type=int, least=1,
                                    most=1 << 20)
    max_output: int | None = setting(None, "maximum tokens of an answer (default: as drawn)", type=int, least=1,
                                     most=1 << 20)

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        inputs, outputs = length_tables(self.hour)
        texts = context.texts
        context.facts |= {"input_mean": inputs.mean, "output_mean": outputs.mean}

        def make() -> Iterator[Session]:
            i = 0
            while True:
                rng = context.rng(i)
                table = int(rng.integers(inputs.count))
                n = context.cap("input", inputs.draw(rng, table), self.max_input)
                answer = context.cap("output", outputs.draw(rng, table), self.max_output)
                yield Session(f"{self.name}-{i}", [context.ask(texts.text(n, i), answer, tokens=n, exact=True)])
                i += 1

        return make()


def length_tables(hour: str) -> tuple[LengthTable, LengthTable]:
    """Returns the tables of prompts and of answers, in tokens, for one quarter of the day or for "all"."""
    tables = [row for row in read_jsonl("servegen-r1-lengths") if hour in ("all", str(row["hour"]))]
    return LengthTable([t["input"] for t in tables]), LengthTable([t["output"] for t in tables])


class LengthTable:
    """Lengths with their probabilities, in several tables."""

    def __init__(self, tables: list[list[list[float]]]) -> None:
        self.count = len(tables)
        self._lengths = [np.array([n for n, _ in table], np.int64) for table in tables]
        shares = [np.array([p for _, p in table]) for table in tables]
        self._ends = [np.cumsum(p) / p.sum() for p in shares]
        means = [float(n @ p / p.sum()) for n, p in zip(self._lengths, shares, strict=True)]
        self.mean = round(sum(means) / len(means), 1)

    def draw(self, rng: np.random.Generator, table: int) -> int:
        return int(self._lengths[table][np.searchsorted(self._ends[table], rng.random(), side="right")])
