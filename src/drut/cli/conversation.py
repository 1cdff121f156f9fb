"""A conversation, kept within the model's context."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Protocol

from drut.engine.request.output import Chunk
from drut.engine.request.params import SamplingParams
from drut.errors import RequestError

Message = dict[str, str]


class Reader(Protocol):
    """The interface of a model that limits a conversation's length."""

    @property
    def room(self) -> int:
        """The maximum number of tokens of a prompt and its answer together."""
        ...

    def encode_chat(self, messages: list[Message]) -> list[int]: ...


class Talker(Reader, Protocol):
    """A model that answers, local or behind a URL."""

    def stream(self, messages: list[Message], params: SamplingParams) -> Generator[Chunk, None, None]: ...


@dataclass
class Conversation:
    """A system message, if any, and turns of a question with its answer."""

    system: str | None = None
    turns: list[tuple[str, str]] = field(default_factory=list)

    def add(self, question: str, answer: str) -> None:
        """Adds a turn. A turn without an answer is dropped, because templates require alternating roles."""
        if answer:
            self.turns.append((question, answer))

    def messages(self, question: str) -> list[Message]:
        """Returns the whole conversation, followed by `question`."""
        earlier = [{"role": "system", "content": self.system}] if self.system is not None else []
        for asked, answered in self.turns:
            earlier += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        return [*earlier, {"role": "user", "content": question}]

    def fit(self, question: str, reader: Reader, answer_tokens: int) -> int:
        """Removes the oldest turns until `question` and an answer fit; returns the number of removed turns.

        `answer_tokens` are reserved for the answer, at most a quarter of the room. Raises RequestError, and removes
        nothing, if `question` alone does not fit.
        """
        most = reader.room - min(answer_tokens, reader.room // 4)
        for forgotten in range(len(self.turns) + 1):
            shorter = Conversation(self.system, self.turns[forgotten:])
            tokens = len(reader.encode_chat(shorter.messages(question)))
            if tokens <= most:
                break
            most = reader.room // 2  # removing more than necessary makes room for several turns to come
        if tokens >= reader.room:
            room = f"the maximum of {reader.room} leaves no room for an answer"
            raise RequestError(f"the message has {tokens} tokens; {room}")
        self.turns = shorter.turns
        return forgotten
