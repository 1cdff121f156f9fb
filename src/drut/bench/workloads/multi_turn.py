"""Conversations that contain the server's own answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from drut.bench.work import ConversationTurn, Session
from drut.bench.workloads.workload import Workload, WorkloadContext
from drut.config import setting


@dataclass(frozen=True)
class MultiTurn(Workload):
    name = "multi-turn"
    help = "conversations of several turns with the server's own answers; endless"

    turns: int = setting(5, "turns of a conversation", type=int, least=1, most=10_000)
    first: str = setting("512", "tokens of the first question, as a length or distribution (see synthetic)")
    later: str = setting("64", "tokens of each later question, in the same forms")
    output: str = setting("128", "tokens of an answer, in the same forms")
    think: float = setting(0.0, "mean seconds, exponential, from an answer to the next question", type=float, least=0.0,
                           most=86_400.0)

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        context.need_chat()
        lengths = [self.lengths("first"), *[self.lengths("later")] * (self.turns - 1)]
        outputs, texts = self.lengths("output"), context.texts

        def make() -> Iterator[Session]:
            i = 0
            while True:
                rng = context.rng(i)
                turns: list[ConversationTurn] = []
                for number, questions in enumerate(lengths):
                    n, answer = questions.draw(rng), outputs.draw(rng)
                    turn = context.ask(texts.text(n, i, number), answer, tokens=n, exact=True)
                    if number:  # the whole prompt's length depends on the answers
                        think = float(rng.exponential(self.think))
                        turn = msgspec.structs.replace(turn, input_tokens=None, think_s=think)
                    turns.append(turn)
                yield Session(f"{self.name}-{i}", turns)
                i += 1

        return make()
