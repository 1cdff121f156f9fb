"""What the text of an answer turns out to be, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the thought before it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """A call of an offered tool; `index` counts the calls of the answer, `id` is like no other's."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments. All pieces joined are the text of a JSON object, unless the answer was cut."""

    index: int
    text: str


Delta = Content | Reasoning | CallBegins | CallArguments


class Text:
    """A buffer that is read from the front."""

    def __init__(self) -> None:
        self.rest = ""

    def take(self, count: int) -> str:
        """The first `count` characters, out of the buffer."""
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def take_before(self, *marks: str) -> tuple[str, str]:
        """What comes before the first of `marks`, and which it is: that is taken too. Empty where none is there; then
        the beginning of one at the end of the buffer is left there."""
        found = [(at, mark) for mark in marks if (at := self.rest.find(mark)) >= 0]
        if found:
            at, mark = min(found, key=lambda each: each[0])
            before = self.take(at)
            self.take(len(mark))
            return before, mark
        return self.take(len(self.rest) - max(overlap(self.rest, mark) for mark in marks)), ""

    def skip_space(self) -> str:
        """White space at the front, out of the buffer."""
        return self.take(len(self.rest) - len(self.rest.lstrip()))


def overlap(text: str, mark: str) -> int:
    """Length of the longest end of `text` that begins `mark` and is not all of it."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
