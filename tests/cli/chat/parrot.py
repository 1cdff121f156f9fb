"""A model, a choice of models and a screen for tests of a chat."""

from __future__ import annotations

import contextlib

from drut import Completion, SamplingParams
from drut.cli.chat.conversation import AnswerPart
from drut.cli.chat.interrupt import Interrupt
from drut.cli.chat.session import Chat
from drut.cli.chat.settings import ChatSettings
from drut.errors import RequestError
from drut.parse.deltas import Content, Delta

PARAMS = SamplingParams(max_tokens=10)


class Parrot:
    """Stands for a model: a token is a character, `deltas` the answer; `before(i, interrupt)` runs ahead of the ith."""

    def __init__(self, *deltas: str | Delta, room: int | None = 1000) -> None:
        self.deltas = [Content(d) if isinstance(d, str) else d for d in deltas or ("I ", "see.")]
        self.room, self.heard, self.params = room, [], []
        self.before = lambda i, interrupt: None

    def encode_chat(self, messages):
        if any(m["content"] == "forbidden" for m in messages):
            raise RequestError("chat template: no such message")
        return [0] * sum(len(m["content"]) for m in messages)

    def stream(self, messages, params, interrupt):
        self.heard.append(messages)
        self.params.append(params)
        for i, delta in enumerate(self.deltas):
            self.before(i, interrupt)
            yield AnswerPart([delta])
            if interrupt.wanted:
                return
        count = len(self.deltas)
        yield AnswerPart([], Completion(text="", token_ids=list(range(count)), finish_reason="stop", prompt_tokens=1,
                                        cached_tokens=0, completion_tokens=count, seed=0, timings={"ttft_s": 0.5}))


class Parrots:
    """Parrots by name; the first is open."""

    def __init__(self, **parrots: Parrot) -> None:
        self.parrots = parrots or {"parrot": Parrot()}
        self.name = next(iter(self.parrots))

    @property
    def talker(self) -> Parrot:
        return self.parrots[self.name]

    def switch(self, name: str) -> None:
        if name not in self.parrots:
            raise RequestError(f"no model {name}")
        self.name = name

    def names(self) -> list[str]:
        return list(self.parrots)


class Recorder:
    """A screen that keeps what it shows: `answers` are pairs of reasoning and content."""

    def __init__(self) -> None:
        self.notes, self.answers, self.questions, self.finishes = [], [], [], []
        self.cleared, self.yes = 0, False

    def note(self, text: str) -> None:
        self.notes.append(text)

    def confirm(self, question: str) -> bool:
        self.questions.append(question)
        return self.yes

    def clear(self) -> None:
        self.cleared += 1

    def answering(self):
        return contextlib.nullcontext(Interrupt())

    @contextlib.contextmanager
    def answer(self, settings: ChatSettings):
        self.answers.append(["", ""])
        yield self

    def reasoning(self, text: str) -> None:
        self.answers[-1][0] += text

    def content(self, text: str) -> None:
        self.answers[-1][1] += text

    def refresh(self) -> None:
        """Nothing is held back."""

    def finished(self, answer: Completion) -> None:
        self.finishes.append(answer)


def chat_with(*deltas: str | Delta, system: str | None = None, **parrots: Parrot) -> tuple[Chat, Parrot]:
    """A chat with a parrot that answers `deltas`, or with the first of `parrots`."""
    models = Parrots(**(parrots or {"parrot": Parrot(*deltas)}))
    return Chat(models, ChatSettings(PARAMS), Recorder(), system), models.talker


def say(*pairs, system=None):
    head = [{"role": "system", "content": system}] if system is not None else []
    return head + [{"role": role, "content": text} for role, text in pairs]
