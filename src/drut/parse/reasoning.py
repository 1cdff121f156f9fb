"""The thoughts of an answer and what comes between and behind them, in a stream of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drut.constrain.thought import State
from drut.parse.deltas import Content, Delta, Reasoning, Text

SPACE = " \t\n\r\v\f"  # what may come before a thought, as bytes in the engine


def _never() -> bool:
    return False


class ReasoningParser:
    """Takes text in pieces cut anywhere. Line ends at both ends of a thought, and behind it, are dropped.

    Behind the first thought a further mark begins another one, and a closing mark alone is dropped. Reasoning of
    different thoughts is on different lines. An answer without a thought is content to the letter.
    """

    def __init__(self, opens: str, closes: str, *, begun: bool | None, again: bool = True,
                 quoted: Callable[[], bool] = _never) -> None:
        """`begun`: the prompt ends inside the thought, or, None, behind it. Without `again` all that follows the first
        thought is content. `quoted`: whether what follows the content so far is text inside a call, as marks are then.
        """
        self._opens, self._closes, self._again, self._quoted = opens, closes, again, quoted
        self.state = State.OVER if begun is None else State.OPEN if begun else State.AHEAD
        self._text = Text()
        self._lines = ""  # line ends of the thought that more of it may follow
        self._fresh = begun is not None  # nothing of the part under way was emitted
        self._thought = False  # some reasoning was emitted

    def push(self, text: str) -> Iterator[Delta]:
        """What `text` brings. Take each before the next: `quoted` is asked in between."""
        self._text.rest += text
        if self.state is State.AHEAD:
            self._look_for_opening()
        while self.state is not State.AHEAD:
            if self.state is State.OPEN:
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
            if self.state is State.OVER and self._quoted():
                yield Content(mark)
            elif self.state is State.OPEN or mark == self._opens:
                self.state = State.OVER if self.state is State.OPEN else State.OPEN
                self._lines, self._fresh = "", True

    def finish(self) -> list[Delta]:
        """The end of the answer: what was held back."""
        rest = self._text.take(len(self._text.rest))
        if self.state is State.OPEN:
            return list(self._think(rest))
        return [Content(rest)] if rest else []

    def _look_for_opening(self) -> None:
        text = self._text.rest.lstrip(SPACE)
        if text.startswith(self._opens):
            self._text.rest = text[len(self._opens) :]
            self.state = State.OPEN
        elif not self._opens.startswith(text):
            self.state, self._fresh, self._again = State.OVER, False, False

    def _think(self, text: str) -> Iterator[Delta]:
        text = self._lines + text
        if self._fresh:
            text = text.lstrip("\n")
        kept = text.rstrip("\n")
        self._lines = text[len(kept) :]
        if kept:
            kept = f"\n{kept}" if self._fresh and self._thought else kept
            self._fresh, self._thought = False, True
            yield Reasoning(kept)

    def _answer(self, text: str) -> Iterator[Delta]:
        if self._fresh:
            text = text.lstrip("\n")
        if text:
            self._fresh = False
            yield Content(text)
