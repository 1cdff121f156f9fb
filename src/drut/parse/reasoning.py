"""The thought of an answer and what comes behind it, in a stream of text."""

from __future__ import annotations

from drut.constrain.thought import State
from drut.parse.deltas import Content, Delta, Reasoning, Text

SPACE = " \t\n\r\v\f"  # what may come before a thought, as bytes in the engine


class ReasoningParser:
    """Takes text in pieces cut anywhere. Line ends at both ends of the thought, and behind it, are dropped."""

    def __init__(self, opens: str, closes: str, *, begun: bool) -> None:
        """`begun`: the prompt ends inside the thought."""
        self._opens, self._closes = opens, closes
        self.state = State.OPEN if begun else State.AHEAD
        self._text = Text()
        self._lines = ""  # line ends of the thought that more of it may follow
        self._fresh = True  # nothing of the part under way was told

    def push(self, text: str) -> list[Delta]:
        """What `text` brings."""
        self._text.rest += text
        made: list[Delta] = []
        if self.state is State.AHEAD:
            self._look_for_opening()
        if self.state is State.OPEN:
            said, closed = self._text.take_before(self._closes)
            self._think(said, made)
            if closed:
                self.state, self._fresh = State.OVER, True
        if self.state is State.OVER:
            self._answer(made)
        return made

    def finish(self) -> list[Delta]:
        """The end of the answer: what was held back."""
        rest, made = self._text.take(len(self._text.rest)), list[Delta]()
        if self.state is State.OPEN:
            self._think(rest, made)
        elif rest:
            made.append(Content(rest))
        return made

    def _look_for_opening(self) -> None:
        said = self._text.rest.lstrip(SPACE)
        if said.startswith(self._opens):
            self._text.rest = said[len(self._opens) :]
            self.state = State.OPEN
        elif not self._opens.startswith(said):
            self.state, self._fresh = State.OVER, False

    def _think(self, text: str, made: list[Delta]) -> None:
        text = self._lines + text
        if self._fresh:
            text = text.lstrip("\n")
        kept = text.rstrip("\n")
        self._lines = text[len(kept) :]
        if kept:
            self._fresh = False
            made.append(Reasoning(kept))

    def _answer(self, made: list[Delta]) -> None:
        rest = self._text.take(len(self._text.rest))
        if self._fresh:
            rest = rest.lstrip("\n")
        if rest:
            self._fresh = False
            made.append(Content(rest))
