"""Questions with tools to call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drut.bench.work import ConversationTurn, Session
from drut.bench.workloads.datasets import Questions
from drut.bench.workloads.packed import read_jsonl
from drut.bench.workloads.workload import WorkloadContext, WorkloadSource
from drut.config import setting


@dataclass(frozen=True)
class Tools(Questions):
    name = "tools"
    help = "BFCL v4: 1,298 questions, each with the functions that the model may call"
    source = WorkloadSource("Berkeley Function-Calling Leaderboard v4", "https://github.com/ShishirPatil/gorilla",
                            "Apache-2.0")

    group: str = setting("all", "which questions: one call, one of several functions, several calls, of live users, "
                         "no fitting function, or all of them",
                         choices=("all", "simple", "multiple", "parallel", "live", "irrelevance"))

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        context.need_chat()
        rows: list[dict[str, Any]] = [r for r in read_jsonl("bfcl") if self.group in ("all", r["group"])]

        def turns(row: int) -> list[ConversationTurn]:
            return [ConversationTurn(rows[row]["messages"], max_tokens=self.max_tokens,
                                     body={"tools": rows[row]["tools"]})]

        return self._rows(context, len(rows), turns)
