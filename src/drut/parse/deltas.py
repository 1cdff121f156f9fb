"""The parts of an output's text as a stream of deltas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the content."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """The begin of a call of an offered tool; `index` counts the calls of the output, `id` is unique."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments. All pieces joined are the text of a JSON object, unless the output was truncated."""

    index: int
    text: str


Delta = Content | Reasoning | CallBegins | CallArguments


class Text:
    """A buffer that is read from the front."""

    def __init__(self) -> None:
        self.rest = ""

    def take(self, count: int) -> str:
        """Removes and returns the first `count` characters."""
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def take_before(self, *marks: str) -> tuple[str, str]:
        """Removes and returns the text before the first of `marks`, and the mark. The mark is empty if there is none;
        then the beginning of one at the end of the buffer stays in the buffer."""
        found = [(at, mark) for mark in marks if (at := self.rest.find(mark)) >= 0]
        if found:
            at, mark = min(found, key=lambda each: each[0])
            before = self.take(at)
            self.take(len(mark))
            return before, mark
        return self.take(len(self.rest) - max(overlap(self.rest, mark) for mark in marks)), ""

    def skip_space(self) -> str:
        """Removes and returns white space at the front."""
        return self.take(len(self.rest) - len(self.rest.lstrip()))


def overlap(text: str, mark: str) -> int:
    """Returns the length of the longest suffix of `text` that is a proper prefix of `mark`."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
