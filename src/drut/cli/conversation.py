"""What has been said, kept within what the model can read at once."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Protocol

from drut.engine.output import Chunk
from drut.engine.params import SamplingParams
from drut.errors import RequestError

Message = dict[str, str]


class Reader(Protocol):
    """Of a model, what a conversation must fit."""

    @property
    def room(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        ...

    def encode_chat(self, messages: list[Message]) -> list[int]: ...


class Talker(Reader, Protocol):
    """A model that answers, here or behind a URL."""

    def stream(self, messages: list[Message], params: SamplingParams) -> Generator[Chunk, None, None]: ...


@dataclass
class Conversation:
    """A system message, if any, and turns of a question with its answer."""

    system: str | None = None
    turns: list[tuple[str, str]] = field(default_factory=list)

    def add(self, question: str, answer: str) -> None:
        """Notes a turn. Without an answer it never was: templates want roles to alternate."""
        if answer:
            self.turns.append((question, answer))

    def messages(self, question: str) -> list[Message]:
        """All that was said, then `question`."""
        said = [{"role": "system", "content": self.system}] if self.system is not None else []
        for asked, answered in self.turns:
            said += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        return [*said, {"role": "user", "content": question}]

    def fit(self, question: str, reader: Reader, answer_tokens: int) -> int:
        """Forgets the oldest turns until `question` and an answer fit; returns how many were forgotten.

        The answer may have `answer_tokens`, but claims no more than a quarter of the room. RequestError, and
        nothing forgotten, where `question` does not fit even without them.
        """
        most = reader.room - min(answer_tokens, reader.room // 4)
        for forgotten in range(len(self.turns) + 1):
            shorter = Conversation(self.system, self.turns[forgotten:])
            tokens = len(reader.encode_chat(shorter.messages(question)))
            if tokens <= most:
                break
            most = reader.room // 2  # once it must forget, it makes room for several turns to come
        if tokens >= reader.room:
            room = f"the {reader.room} that fit leave no room for an answer"
            raise RequestError(f"the message comes to {tokens} tokens; {room}")
        self.turns = shorter.turns
        return forgotten
