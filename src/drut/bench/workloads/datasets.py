"""Questions of public data sets, in a random order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from drut.bench.work import ConversationTurn, Session
from drut.bench.workloads.packed import read_jsonl
from drut.bench.workloads.workload import Workload, WorkloadContext, WorkloadSource, user
from drut.config import setting


@dataclass(frozen=True)
class Questions(Workload):
    """Rows in a seeded random order, different in each round."""

    max_tokens: int = setting(512, "maximum tokens of an answer", type=int, least=1, most=1 << 20)
    repeat: bool = setting(True, "start again, in another order, after the last row", type=bool)

    def _rows(self, context: WorkloadContext, rows: int, turns: Callable[[int],
                                                                         list[ConversationTurn]]) -> Iterator[Session]:
        for number, row in enumerate(context.order(rows, self.repeat)):
            yield Session(f"{self.name}-{number}-row-{row}", turns(row))


@dataclass(frozen=True)
class MTBench(Questions):
    name = "chat"
    help = "MT-Bench: 80 conversations of two questions, the second after the server's own answer"
    source = WorkloadSource("MT-Bench questions", "https://github.com/lm-sys/FastChat", "Apache-2.0")

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        context.need_chat()
        rows: list[list[str]] = read_jsonl("mt-bench")

        def turns(row: int) -> list[ConversationTurn]:
            first, *later = rows[row]
            return [context.ask(first, self.max_tokens),
                    *(ConversationTurn([user(text)], max_tokens=self.max_tokens) for text in later)]

        return self._rows(context, len(rows), turns)


@dataclass(frozen=True)
class GSM8K(Questions):
    name = "gsm8k"
    help = "GSM8K test set: 1,319 school problems in words"
    source = WorkloadSource("GSM8K", "https://github.com/openai/grade-school-math", "MIT")

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        rows: list[str] = read_jsonl("gsm8k")
        return self._rows(context, len(rows), lambda row: [context.ask(rows[row], self.max_tokens)])
