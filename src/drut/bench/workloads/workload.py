"""The base of workloads: a frozen record of options that creates sessions in a context."""

from __future__ import annotations

import dataclasses
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np

from drut.bench.tokens import BenchTokenizer
from drut.bench.work import ConversationTurn, Message, Session
from drut.bench.workloads.lengths import Lengths
from drut.bench.workloads.texts import WorkloadTexts, generator
from drut.config import check_value
from drut.errors import RequestError


@dataclass(frozen=True)
class WorkloadSource:
    """The source of a workload's data."""

    title: str
    url: str
    licence: str


@dataclass
class WorkloadContext:
    """The inputs for sessions, and counts made while they are created."""

    workload: str
    seed: int
    chat: bool
    ids: bool
    tokenizer: BenchTokenizer | None
    no_tokenizer: str = ""  # the reason why there is none
    counts: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Any] = field(default_factory=dict)
    _texts: WorkloadTexts | None = None

    @property
    def texts(self) -> WorkloadTexts:
        """Returns the source of texts of given lengths. Raises RequestError without a tokenizer."""
        if self._texts is None:
            # Two workloads with the same seed must not warm up a server's cache for each other.
            self._texts = WorkloadTexts(self.need_tokenizer(), self._entropy)
        return self._texts

    def rng(self, *key: int) -> np.random.Generator:
        """Returns random numbers of this workload, seed and key, independent of the tokenizer."""
        return generator(self._entropy, key)

    @property
    def _entropy(self) -> tuple[int, int]:
        return self.seed, zlib.crc32(self.workload.encode())

    def need_tokenizer(self) -> BenchTokenizer:
        """Returns the target's tokenizer. Raises RequestError if there is none."""
        if self.tokenizer is None:
            why = f"; {self.no_tokenizer}" if self.no_tokenizer else ""
            raise RequestError(f"workload {self.workload!r} makes prompts of given lengths or of token ids and needs "
                               f"the target's tokenizer (--tokenizer){why}")
        return self.tokenizer

    def need_chat(self) -> None:
        if not self.chat:
            raise RequestError(f"workload {self.workload!r} is a conversation and needs the chat endpoint")

    def ask(self, text: str, max_tokens: int, *, tokens: int | None = None, exact: bool = False) -> ConversationTurn:
        """Returns a turn with the user message `text`, which has `tokens` tokens (counted here if None)."""
        if tokens is None:
            tokens = self.tokenizer.count(text) if self.tokenizer else None
        if self.chat:
            return ConversationTurn([user(text)], None, max_tokens, exact, tokens)
        if self.ids:
            return ConversationTurn([], self.need_tokenizer().encode(text), max_tokens, exact, tokens)
        return ConversationTurn([], text, max_tokens, exact, tokens)

    def cap(self, what: str, n: int, most: int | None) -> int:
        """Returns the smaller of `n` and `most`, and counts reductions as `capped_WHAT`."""
        if most is None or n <= most:
            return n
        self.counts[f"capped_{what}"] += 1
        return most

    def order(self, rows: int, repeat: bool) -> Iterator[int]:
        """Yields row numbers in a random order, different in each round; one round unless `repeat`."""
        self.facts |= {"rows": rows, "repeats": repeat}
        turn = 0
        while rows:
            yield from (int(i) for i in self.rng(turn).permutation(rows))
            turn += 1
            if not repeat:
                return


def user(text: str) -> Message:
    return {"role": "user", "content": text}


@dataclass(frozen=True)
class Workload(ABC):
    """The base of all workloads. Options are fields made with `drut.config.setting`."""

    name: ClassVar[str]
    help: ClassVar[str]
    source: ClassVar[WorkloadSource | None] = None

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            check_value(f"workload {self.name!r}: {option.name}", getattr(self, option.name), option.metadata)

    @abstractmethod
    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        """Yields the sessions, in order. Raises errors of options or data before the first one."""

    def primers(self, context: WorkloadContext) -> list[ConversationTurn]:
        """Returns a request for each prefix that many sessions share: with these in a prefix cache, its state is that
        after any number of sessions. None if prompts share nothing, or too much to be sent beforehand."""
        return []

    def lengths(self, option: str) -> Lengths:
        """Returns the distribution given by an option."""
        return Lengths.parse(getattr(self, option), f"workload {self.name!r}: {option}")


class Sessions(Iterator[Session]):
    """The sessions of one workload, created as they are taken. They do not depend on when they are taken.

    `most` is the maximum number of requests: the last session is cut to it."""

    def __init__(self, workload: Workload, context: WorkloadContext, most: int | None = None) -> None:
        self._workload = workload
        self._context = context
        self._sessions = workload.sessions(context)
        self._most = most
        self.requests = 0  # of the sessions that were taken

    def __next__(self) -> Session:
        left = None if self._most is None else self._most - self.requests
        if left == 0:
            raise StopIteration
        session = next(self._sessions)
        if left is not None and len(session.turns) > left:
            session = msgspec.structs.replace(session, turns=session.turns[:left])
        self._context.counts["sessions"] += 1
        self.requests += len(session.turns)
        return session

    def primers(self) -> list[ConversationTurn]:
        """Returns `Workload.primers`."""
        return self._workload.primers(self._context)

    def describe(self) -> dict[str, Any]:
        """Returns the description of the work for results. `counts` covers the sessions taken so far: their number, and
        the number of turns with input or output cut to a cap."""
        context, source = self._context, self._workload.source
        return {
            "workload": context.workload,
            "options": dataclasses.asdict(self._workload),
            "seed": context.seed,
            "prompts": "messages" if context.chat else "token ids" if context.ids else "text",
            "tokenizer": context.tokenizer.name if context.tokenizer else None,
            "source": dataclasses.asdict(source) if source else None,
            "facts": dict(context.facts),
            "counts": dict(context.counts),
        }
