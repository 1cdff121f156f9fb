"""The reasoning parser: separates reasoning from content in a stream of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drut.constrain.reasoning import ReasoningState
from drut.parse.deltas import Content, Delta, Reasoning, Text

SPACE = " \t\n\r\v\f"  # white space that may precede reasoning, the same bytes as in the engine


def _never() -> bool:
    return False


class ReasoningParser:
    """A parser of text in pieces. Line ends at both ends of a section of reasoning, and behind it, are dropped.

    Behind the first section a further mark begins another one, and a closing mark without an opening one is dropped.
    Different sections are on different lines. An output without reasoning is content, unchanged.
    """

    def __init__(self, opens: str, closes: str, *, begun: bool | None, again: bool = True,
                 quoted: Callable[[], bool] = _never) -> None:
        """`begun`: the prompt ends inside the reasoning or, None, behind it. Without `again` all text behind the first
        section is content. `quoted`: whether the next text is inside a call's string, where marks are text.
        """
        self._opens, self._closes, self._again, self._quoted = opens, closes, again, quoted
        self.state = ReasoningState.OVER if begun is None else ReasoningState.OPEN if begun else ReasoningState.AHEAD
        self._text = Text()
        self._lines = ""  # line ends of the reasoning, held back until more of it follows
        self._fresh = begun is not None  # nothing of the current part was emitted
        self._reasoning = False  # some reasoning was emitted

    def push(self, text: str) -> Iterator[Delta]:
        """Yields the deltas of `text`. Order: consume each before the next, because `quoted` is called in between."""
        self._text.rest += text
        if self.state is ReasoningState.AHEAD:
            self._look_for_opening()
        while self.state is not ReasoningState.AHEAD:
            if self.state is ReasoningState.OPEN:
                text, mark = self._text.take_before(self._closes)
                yield from self._think(text)
            elif self._again:
                text, mark = self._text.take_before(self._opens, self._closes)
                yield from self._answer(text)
            else:
                text, mark = self._text.take(len(self._text.rest)), ""
                yield from self._answer(text)
            if not mark:
                return
            if self.state is ReasoningState.OVER and self._quoted():
                yield Content(mark)
            elif self.state is ReasoningState.OPEN or mark == self._opens:
                self.state = ReasoningState.OVER if self.state is ReasoningState.OPEN else ReasoningState.OPEN
                self._lines, self._fresh = "", True

    def finish(self) -> list[Delta]:
        """Returns the text that was held back, at the end of the output."""
        rest = self._text.take(len(self._text.rest))
        if self.state is ReasoningState.OPEN:
            return list(self._think(rest))
        return [Content(rest)] if rest else []

    def _look_for_opening(self) -> None:
        text = self._text.rest.lstrip(SPACE)
        if text.startswith(self._opens):
            self._text.rest = text[len(self._opens) :]
            self.state = ReasoningState.OPEN
        elif not self._opens.startswith(text):
            self.state, self._fresh, self._again = ReasoningState.OVER, False, False

    def _think(self, text: str) -> Iterator[Delta]:
        text = self._lines + text
        if self._fresh:
            text = text.lstrip("\n")
        kept = text.rstrip("\n")
        self._lines = text[len(kept) :]
        if kept:
            kept = f"\n{kept}" if self._fresh and self._reasoning else kept
            self._fresh, self._reasoning = False, True
            yield Reasoning(kept)

    def _answer(self, text: str) -> Iterator[Delta]:
        if self._fresh:
            text = text.lstrip("\n")
        if text:
            self._fresh = False
            yield Content(text)
