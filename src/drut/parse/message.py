"""Parses the text of one output to a message: reasoning, content and calls."""

from __future__ import annotations

from collections.abc import Iterable

from drut.parse.deltas import CallArguments, CallBegins, Content, Delta, Reasoning
from drut.parse.reasoning import ReasoningParser
from drut.parse.tools import CallParser


class MessageParser:
    """A parser of text in pieces; the joined result does not depend on where the pieces are split."""

    def __init__(self, reasoning: ReasoningParser | None = None, tools: CallParser | None = None) -> None:
        self._reasoning, self._tools = reasoning, tools

    @property
    def calls(self) -> int:
        """The number of calls so far."""
        return self._tools.calls if self._tools is not None else 0

    @property
    def cut(self) -> bool:
        """Whether the output ended inside a call that was emitted."""
        return self._tools is not None and self._tools.cut

    def push(self, text: str) -> list[Delta]:
        """Returns the deltas of `text`."""
        if not text:
            return []
        return merged(self._call(self._reasoning.push(text) if self._reasoning is not None else [Content(text)]))

    def finish(self) -> list[Delta]:
        """Returns the last deltas, at the end of the output."""
        made = self._call(self._reasoning.finish()) if self._reasoning is not None else []
        return merged([*made, *(self._tools.finish() if self._tools is not None else ())])

    def _call(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Looks for calls in content; reasoning has none."""
        if self._tools is None:
            return list(deltas)
        made: list[Delta] = []
        for delta in deltas:
            made += self._tools.push(delta.text) if isinstance(delta, Content) else [delta]
        return made


def merged(deltas: Iterable[Delta]) -> list[Delta]:
    """Returns the deltas with adjacent ones of one kind joined."""
    made: list[Delta] = []
    for delta in deltas:
        last = made[-1] if made else None
        match last, delta:
            case (Content(a), Content(b)):
                made[-1] = Content(a + b)
            case (Reasoning(a), Reasoning(b)):
                made[-1] = Reasoning(a + b)
            case (CallArguments(i, a), CallArguments(j, b)) if i == j:
                made[-1] = CallArguments(i, a + b)
            case _:
                made.append(delta)
    return made


class Call:
    """A complete call."""

    def __init__(self, begins: CallBegins) -> None:
        self.id, self.name, self.arguments = begins.id, begins.name, ""


class ParsedMessage:
    """The message that the deltas of an output add up to."""

    def __init__(self, deltas: Iterable[Delta] = ()) -> None:
        self.content = self.reasoning = ""
        self.calls: list[Call] = []
        for delta in deltas:
            self.add(delta)

    def add(self, delta: Delta) -> None:
        match delta:
            case Content(text):
                self.content += text
            case Reasoning(text):
                self.reasoning += text
            case CallBegins():
                self.calls.append(Call(delta))
            case CallArguments(index, text):
                self.calls[index].arguments += text
