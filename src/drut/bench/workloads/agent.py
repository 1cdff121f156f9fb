"""Agents at work: recorded trajectories with growing prompts, and recorded graphs of calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drut.bench.work import ConversationTurn, Message, Session
from drut.bench.workloads.datasets import Questions
from drut.bench.workloads.packed import read_jsonl
from drut.bench.workloads.workload import Workload, WorkloadContext, WorkloadSource, user
from drut.config import setting

_CALL = "(calls a tool)"  # the trajectories do not contain the call


@dataclass(frozen=True)
class Agent(Questions):
    name = "agent"
    help = ("tau-bench, retail: 69 trajectories in which each prompt is the previous one with the recorded answer and "
            "the messages after it")
    source = WorkloadSource("tau-bench few-shot trajectories", "https://github.com/sierra-research/tau-bench", "MIT")

    max_tokens: int = setting(128, "maximum tokens of an answer", type=int, least=1, most=1 << 20)
    system: int = setting(0, "tokens of a system prompt that all trajectories share", type=int, least=0, most=1 << 20)
    tool_s: float = setting(0.0, "seconds that a tool takes", type=float, least=0.0, most=86_400.0)

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        context.need_chat()
        rows: list[list[tuple[str, str]]] = read_jsonl("tau-bench")
        shared = [{"role": "system", "content": context.texts.text(self.system)}] if self.system else []

        def make() -> Iterator[Session]:
            for number, row in enumerate(context.order(len(rows), self.repeat)):
                turns, replies = self._trajectory(rows[row], shared)
                yield Session(f"{self.name}-{number}-row-{row}", turns, replies)

        return make()

    def _trajectory(
        self, messages: list[tuple[str, str]], shared: list[Message]
    ) -> tuple[list[ConversationTurn], list[list[Message]]]:
        """Returns a turn for each recorded answer. Results of tools are user messages: a `tool` message would need the
        id of a call, and the calls were not recorded."""
        turns: list[ConversationTurn] = []
        replies: list[list[Message]] = []
        pending, think = list(shared), 0.0
        for role, text in messages:
            if role == "assistant":
                turns.append(ConversationTurn(pending, max_tokens=self.max_tokens, think_s=think))
                replies.append([{"role": "assistant", "content": _CALL if text == "None" else text}])
                pending, think = [], 0.0
            elif role == "tool":
                pending.append(user(f"Result of the tool:\n{text}"))
                think = self.tool_s
            else:
                pending.append(user(text))
        return turns, replies


@dataclass(frozen=True)
class AgentGraph(Workload):
    name = "agent-graph"
    help = ("two recorded graphs of several agents, 27 calls: each call is sent at its recorded time, with the prompt "
            "it had")
    source = WorkloadSource("inference-perf OpenTelemetry traces", "https://github.com/kubernetes-sigs/inference-perf",
                            "Apache-2.0")

    stretch: float = setting(1.0, "factor on the recorded times: 2 is half the speed", type=float, least=1e-6, most=1e6)
    max_output: int | None = setting(None, "maximum tokens of an answer (default: as recorded)", type=int, least=1,
                                     most=1 << 20)

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        context.need_chat()
        rows: list[dict[str, Any]] = read_jsonl("otel-agents")
        context.facts |= {"rows": len(rows), "repeats": False, "stretch": self.stretch}
        rows.sort(key=lambda row: row["at_s"])

        def make() -> Iterator[Session]:
            for row in rows:
                limit = context.cap("output", row["max_tokens"], self.max_output)
                yield Session(f"{row['trace']}-{row['span']}", [ConversationTurn(row["messages"], max_tokens=limit)],
                              at_s=row["at_s"] * self.stretch)

        return make()
