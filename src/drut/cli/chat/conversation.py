"""A conversation, kept within the model's context."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from drut.cli.chat.interrupt import Interrupt
from drut.engine.request.output import Completion
from drut.engine.request.params import SamplingParams
from drut.errors import RequestError
from drut.parse.deltas import Delta

Message = dict[str, str]


class AnswerPart(NamedTuple):
    """New deltas of an answer, perhaps none; `completion` is set in the last part of a complete answer."""

    deltas: Sequence[Delta]
    completion: Completion | None = None


class Reader(Protocol):
    """The interface of a model that limits a conversation's length."""

    @property
    def room(self) -> int | None:
        """The maximum number of tokens of a prompt and its answer together; None if it is not known."""
        ...

    def encode_chat(self, messages: list[Message]) -> list[int]: ...


class Talker(Reader, Protocol):
    """A model that answers, local or behind a URL."""

    def stream(self, messages: list[Message], params: SamplingParams,
               interrupt: Interrupt) -> Generator[AnswerPart, None, None]:
        """Yields the answer as it comes, and ends early once `interrupt` is wanted. Closing it aborts the request."""
        ...


@dataclass
class Conversation:
    """A system message, if any, and turns of a question with its answer."""

    system: str | None = None
    turns: list[tuple[str, str]] = field(default_factory=list)

    def add(self, question: str, answer: str) -> None:
        """Adds a turn. A turn without an answer is dropped, because templates require alternating roles."""
        if answer:
            self.turns.append((question, answer))

    def messages(self, question: str | None = None) -> list[Message]:
        """Returns the whole conversation, followed by `question` if there is one."""
        earlier = [{"role": "system", "content": self.system}] if self.system is not None else []
        for asked, answered in self.turns:
            earlier += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        return earlier if question is None else [*earlier, {"role": "user", "content": question}]

    def fit(self, question: str, reader: Reader, answer_tokens: int | None) -> int:
        """Removes the oldest turns until `question` and an answer fit; returns the number of removed turns.

        `answer_tokens` are reserved for the answer, at most a quarter of the room; None: a quarter. Raises
        RequestError, and removes nothing, if `question` alone does not fit.
        """
        shorter = Conversation(self.system, list(self.turns))
        tokens = len(reader.encode_chat(shorter.messages(question)))
        room = reader.room
        if room is None:
            return 0
        most = room - (room // 4 if answer_tokens is None else min(answer_tokens, room // 4))
        while tokens > most and shorter.turns:
            most = room // 2  # removing more than necessary makes room for several turns to come
            del shorter.turns[0]
            tokens = len(reader.encode_chat(shorter.messages(question)))
        if tokens >= room:
            raise RequestError(f"the message has {tokens} tokens; the maximum of {room} leaves no room for an answer")
        forgotten = len(self.turns) - len(shorter.turns)
        self.turns = shorter.turns
        return forgotten
