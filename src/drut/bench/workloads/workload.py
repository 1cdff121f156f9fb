"""What a workload is: a frozen record of its options that makes sessions out of a context."""

from __future__ import annotations

import dataclasses
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from drut.bench.tokens import Tokenizer
from drut.bench.work import Message, Session, Turn
from drut.bench.workloads.lengths import Lengths
from drut.bench.workloads.texts import Texts, generator
from drut.config import check_value
from drut.errors import RequestError


@dataclass(frozen=True)
class Source:
    """Where a workload's data comes from."""

    title: str
    url: str
    licence: str


@dataclass
class Context:
    """What sessions are made with, and what was counted while they were made."""

    workload: str
    seed: int
    chat: bool
    ids: bool
    tokenizer: Tokenizer | None
    no_tokenizer: str = ""  # why there is none
    counts: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Any] = field(default_factory=dict)
    _texts: Texts | None = None

    @property
    def texts(self) -> Texts:
        """Texts of given lengths. RequestError where no tokenizer was given."""
        if self._texts is None:
            # Two workloads of one seed must not warm a server's cache for each other.
            self._texts = Texts(self.need_tokenizer(), self._entropy)
        return self._texts

    def rng(self, *key: int) -> np.random.Generator:
        """Random numbers of this workload, seed and key; what they draw does not depend on the tokenizer."""
        return generator(self._entropy, key)

    @property
    def _entropy(self) -> tuple[int, int]:
        return self.seed, zlib.crc32(self.workload.encode())

    def need_tokenizer(self) -> Tokenizer:
        """The target's tokenizer. RequestError where none was given."""
        if self.tokenizer is None:
            why = f"; {self.no_tokenizer}" if self.no_tokenizer else ""
            raise RequestError(f"workload {self.workload!r} makes prompts of given lengths or of token ids and needs "
                               f"the target's tokenizer (--tokenizer){why}")
        return self.tokenizer

    def need_chat(self) -> None:
        if not self.chat:
            raise RequestError(f"workload {self.workload!r} is a conversation and needs the chat endpoint")

    def ask(self, text: str, max_tokens: int, *, tokens: int | None = None, exact: bool = False) -> Turn:
        """A turn that asks `text`, which has `tokens` tokens (counted here where they are not given)."""
        if tokens is None:
            tokens = self.tokenizer.count(text) if self.tokenizer else None
        if self.chat:
            return Turn([user(text)], None, max_tokens, exact, tokens)
        if self.ids:
            return Turn([], self.need_tokenizer().encode(text), max_tokens, exact, tokens)
        return Turn([], text, max_tokens, exact, tokens)

    def cap(self, what: str, n: int, most: int | None) -> int:
        """`n`, or `most` where it is less; how often is counted as `capped_WHAT`."""
        if most is None or n <= most:
            return n
        self.counts[f"capped_{what}"] += 1
        return most

    def order(self, rows: int, repeat: bool) -> Iterator[int]:
        """Row numbers in a random order, another in each round; one round unless `repeat`."""
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
    """Base of all kinds. Options are fields made with `drut.config.setting`."""

    name: ClassVar[str]
    help: ClassVar[str]
    source: ClassVar[Source | None] = None

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            check_value(f"workload {self.name!r}: {option.name}", getattr(self, option.name), option.metadata)

    @abstractmethod
    def sessions(self, context: Context) -> Iterator[Session]:
        """The sessions, in order. What is wrong with options or data is raised here, before the first of them."""

    def primers(self, context: Context) -> list[Turn]:
        """A request for each beginning that prompts of many sessions share: with these in a prefix cache, it is as it
        is after any number of sessions. None where prompts share nothing, or too much to be asked beforehand."""
        return []

    def lengths(self, option: str) -> Lengths:
        """The distribution that an option names."""
        return Lengths.parse(getattr(self, option), f"workload {self.name!r}: {option}")


class Sessions(Iterator[Session]):
    """The sessions of one workload, made as they are taken. The list does not depend on when they are taken."""

    def __init__(self, workload: Workload, context: Context) -> None:
        self._workload = workload
        self._context = context
        self._sessions = workload.sessions(context)

    def __next__(self) -> Session:
        session = next(self._sessions)
        self._context.counts["sessions"] += 1
        return session

    def primers(self) -> list[Turn]:
        """As `Workload.primers`."""
        return self._workload.primers(self._context)

    def describe(self) -> dict[str, Any]:
        """What a result says of its work. `counts` are of the sessions taken so far: how many there were, and of how
        many turns an input or output was cut to a cap."""
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
