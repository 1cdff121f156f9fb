"""The two screens of a chat: a pipe, and a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from drut.cli.chat.interrupt import Interrupt
from drut.cli.chat.session import AnswerView
from drut.cli.chat.settings import ChatSettings
from drut.cli.terminal import Writer, note
from drut.engine.request.output import Completion


class PlainAnswer:
    """An answer as the model writes it."""

    def __init__(self, out: Writer, *, reasoning: bool) -> None:
        self._out, self._reasoning = out, reasoning

    def content(self, text: str) -> None:
        self._out.write(text)

    def reasoning(self, text: str) -> None:
        if self._reasoning:
            self._out.aside(text)

    def refresh(self) -> None:
        """All text is shown already."""


@contextlib.contextmanager
def plain_answer(settings: ChatSettings) -> Iterator[AnswerView]:
    """Yields the view of an answer that is not rendered."""
    with Writer() as out:
        yield PlainAnswer(out, reasoning=settings.reasoning)


class PipeScreen:
    """Answers on standard output, notes on standard error, no questions."""

    def note(self, text: str) -> None:
        note(text)

    def confirm(self, question: str) -> bool:
        return False

    def clear(self) -> None:
        """A pipe has no screen."""

    def answering(self) -> contextlib.AbstractContextManager[Interrupt]:
        return contextlib.nullcontext(Interrupt())

    def answer(self, settings: ChatSettings) -> contextlib.AbstractContextManager[AnswerView]:
        return plain_answer(settings)

    def finished(self, answer: Completion) -> None:
        """Speeds are for people."""
