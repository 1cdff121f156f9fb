"""Mooncake's traces: times, lengths, and the blocks of 512 tokens that prompts share.

A block's id identifies the whole prompt up to its end, so equal ids mean equal prefixes. The text of a block is made
from its id: prompts share exactly the blocks given by the trace, and differ within three tokens after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drut.bench.work import Session
from drut.bench.workloads.packed import read_jsonl
from drut.bench.workloads.texts import WorkloadTexts
from drut.bench.workloads.traces import Trace, TraceArrival
from drut.bench.workloads.workload import WorkloadContext, WorkloadSource
from drut.config import setting
from drut.errors import RequestError

RECORDED_BLOCK = 512


def read_mooncake(name: str) -> list[TraceArrival]:
    """Returns the rows of a packed Mooncake trace, in order of time. The last block of a row may be partly filled."""
    rows = []
    for at_ms, n, answer, runs in read_jsonl(name):
        blocks = [i for start, count in zip(runs[::2], runs[1::2], strict=True) for i in range(start, start + count)]
        rows.append(TraceArrival(at_ms / 1e3, n, answer, blocks))
    return rows


def ideal_hit_rate(rows: Sequence[TraceArrival]) -> float:
    """Returns the share of blocks that are a prefix of an earlier row too: the hit rate of an unlimited prefix
    cache."""
    seen: set[int] = set()
    hits = total = 0
    for row in rows:
        hits += next((i for i, block in enumerate(row.blocks) if block not in seen), len(row.blocks))
        total += len(row.blocks)
        seen.update(row.blocks)
    return hits / total


@dataclass(frozen=True)
class Mooncake(Trace):
    """Builds prompts from blocks. A block of fewer tokens shortens all prompts in proportion and keeps what they
    share."""

    block: int = setting(RECORDED_BLOCK, f"tokens that stand for a block of {RECORDED_BLOCK}: 64 makes prompts an "
                         "eighth as long", type=int, least=16, most=RECORDED_BLOCK)

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        if self.max_input is not None and self.max_input < self.block:
            raise RequestError(f"workload {self.name!r}: max_input must be at least a block of {self.block} tokens")
        rows = [self.scaled(row) for row in read_mooncake(self.name)]
        self.report(context, rows)
        cut = [self.cut(row) for row in rows]
        blocks = 1 + max(max(row.blocks) for row in rows)
        context.facts |= {"block": self.block, "ideal_hit_rate": round(ideal_hit_rate(cut), 4)}
        texts = context.texts

        def make() -> Iterator[Session]:
            for i, (whole, row) in enumerate(zip(rows, cut, strict=True)):
                context.counts["capped_input"] += row.input < whole.input
                answer = context.cap("output", row.output, self.max_output)
                turn = context.ask(self._prompt(texts, row, blocks), answer, tokens=row.input, exact=True)
                yield Session(f"{self.name}-{i}", [turn], at_s=row.at_s * self.stretch)

        return make()

    def scaled(self, row: TraceArrival) -> TraceArrival:
        """Returns the row with blocks of `block` tokens; the last one is filled in proportion, rounded up."""
        return row._replace(input=-(-row.input * self.block // RECORDED_BLOCK))

    def cut(self, row: TraceArrival) -> TraceArrival:
        """Returns the whole blocks of the row that fit into `max_input`, if the row does not fit."""
        if self.max_input is None or row.input <= self.max_input:
            return row
        kept = self.max_input // self.block
        return row._replace(input=kept * self.block, blocks=row.blocks[:kept])

    def _prompt(self, texts: WorkloadTexts, row: TraceArrival, blocks: int) -> str:
        def piece(place: int, n: int) -> str:
            block = row.blocks[place]
            return texts.piece(n, block, inside=place > 0, label=(block, blocks))

        last = len(row.blocks) - 1
        head = "".join(piece(place, self.block) for place in range(last))
        return texts.exact(lambda n: head + piece(last, n - last * self.block), row.input)


@dataclass(frozen=True)
class MooncakeConversation(Mooncake):
    name = "mooncake-conversation"
    help = "trace of a chat service with shared prefixes, 12,031 requests of 59 minutes, long prompts"
    source = WorkloadSource("Mooncake conversation trace (FAST 2025)", "https://github.com/kvcache-ai/Mooncake",
                            "Apache-2.0")


@dataclass(frozen=True)
class MooncakeSynthetic(Mooncake):
    name = "mooncake-synthetic"
    help = "made trace with more sharing, 3,993 requests of 17 minutes, Poisson, long prompts and short answers"
    source = WorkloadSource("Mooncake synthetic trace (FAST 2025)", "https://github.com/kvcache-ai/Mooncake",
                            "Apache-2.0")
