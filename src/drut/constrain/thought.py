"""Where the thought of an answer begins and ends, and how a budget closes it: a function of the answer's own tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from drut.errors import RequestError
from drut.model.tokenizer import Tokenizer

MOST_MARK_CHARS = 256
MOST_BUDGET = 1 << 30


@dataclass(frozen=True)
class Thought:
    """A model thinks between `opens` and `closes`, first thing in its answer. RequestError names a bad field.

    `begun`: the prompt ends inside the thought; None: it ends behind one. After `budget` tokens of thought the text
    `closing` is forced, which must hold `closes`; then the answer follows. Where no grammar binds that, a further
    `opens` in it begins a further thought, with what is left of the budget, unless it stands between the marks `calls`,
    of which an empty second one is the end of the answer.
    """

    opens: str
    closes: str
    begun: bool | None = False
    budget: int | None = None  # tokens after `opens`; None: as many as the model likes
    closing: str = ""
    calls: tuple[str, str] = ("", "")  # of tools; an empty first one: there are none

    def __post_init__(self) -> None:
        texts = {"opens": self.opens, "closes": self.closes, "closing": self.closing,
                 **{f"calls[{i}]": mark for i, mark in enumerate(self.calls)}}
        for name, text in texts.items():
            empty = not text and name in ("opens", "closes")
            if not isinstance(text, str) or len(text) > MOST_MARK_CHARS or empty:
                raise RequestError(f"thought.{name} must be a string of 1 to {MOST_MARK_CHARS} characters")
        if self.budget is None:
            return
        if isinstance(self.budget, bool) or not isinstance(self.budget, int) or not 0 <= self.budget <= MOST_BUDGET:
            raise RequestError(f"thought.budget must be an integer from 0 to {MOST_BUDGET}")
        if self.closes not in self.closing:
            raise RequestError(f"thought.closing must hold {self.closes!r}: it is what ends the thought")


class State(Enum):
    AHEAD = auto()  # nothing but white space, or the beginning of `opens`, was said
    OPEN = auto()
    OVER = auto()  # closed, or the answer began without one


class ThoughtWatch:
    """Follows one answer, a token at a time."""

    def __init__(self, thought: Thought, opening: Sequence[int], closing: Sequence[int],
                 token_bytes: Callable[[int], bytes], *, again: bool = True) -> None:
        """`opening`, `closing`: the ids of `thought.opens` and `thought.closing`; `again`: whether there may be further
        thoughts behind the first."""
        self._thought, self._bytes, self._again = thought, token_bytes, again
        self.opening, self.closing = tuple(opening), tuple(closing)
        self._opens, self._closes = thought.opens.encode(), thought.closes.encode()
        self._calls = tuple(mark.encode() for mark in thought.calls)
        self._calling = False  # between the marks of a call
        self._said = b""  # what may still become a mark
        self._seen = 0  # tokens
        self._left = thought.budget  # of the budget, when the thought under way began
        self._begun_at = 0  # tokens before it
        self._force_at: int | None = None  # the output where forcing begins
        self.state = State.AHEAD if thought.begun is not None else State.OVER
        self.tokens = 0  # of thoughts with their marks
        if thought.begun:
            self._open()

    @classmethod
    def of(cls, thought: Thought, tokenizer: Tokenizer, hidden: frozenset[int] = frozenset(), *,
           again: bool = True) -> ThoughtWatch:
        """`hidden`: tokens that the answer's text leaves out; they are no part of it here either, unless they spell a
        mark. RequestError where the vocabulary cannot spell `closing`."""
        opening, closing = (tokenizer.encode_more(text) for text in (thought.opens, thought.closing))
        for text, mark, ids in (("opens", thought.opens, opening), ("closing", thought.closes, closing)):
            if ids and mark.encode() not in b"".join(map(tokenizer.token_bytes, ids)):
                raise RequestError(f"thought.{text}: {tokenizer.name} has no tokens for {mark!r}")
        marks = map(tokenizer.id_of, (thought.opens, thought.closes, *thought.calls))
        unseen = hidden.difference(opening, closing, marks)
        return cls(thought, opening, closing, lambda i: b"" if i in unseen else tokenizer.token_bytes(i), again=again)

    def twin(self) -> ThoughtWatch:
        """A new one for another answer."""
        return ThoughtWatch(self._thought, self.opening, self.closing, self._bytes, again=self._again)

    def push(self, token: int) -> bool:
        """Takes the next token of the answer; True where it is none of the answer proper."""
        before, forced = self.state, self.forced(self._seen) is not None
        self._seen += 1
        if before is State.OVER and (forced or not self._again):
            return forced  # behind the mark, but still of the closing
        self._said += self._bytes(token)
        if before is State.AHEAD:
            self._look_for_opening()
        elif before is State.OVER:
            self._look_for_more()
        thinks = State.OPEN in (before, self.state)
        if thinks:
            self.tokens = self._seen if before is State.AHEAD else self.tokens + 1
        if self.state is State.OPEN:
            self._look_for_close()
        return thinks or self.state is State.AHEAD

    def _look_for_opening(self) -> None:
        said = self._said = self._said.lstrip()
        if said.startswith(self._opens):
            self._said = said[len(self._opens) :]
            self._open()
        elif not self._opens.startswith(said):
            self.state, self._said, self._again = State.OVER, b"", False

    def _look_for_more(self) -> None:
        """In the answer: a further thought, unless that is in a call."""
        opens_call, closes_call = self._calls
        while True:
            marks = (closes_call,) if self._calling else (self._opens, opens_call)
            found = {mark: at for mark in marks if mark and (at := self._said.find(mark)) >= 0}
            if not found:
                longest = max(map(len, marks))
                self._said = self._said[max(0, len(self._said) - longest + 1) :] if longest else b""
                return
            mark = min(found, key=lambda mark: found[mark])
            self._said = self._said[found[mark] + len(mark) :]
            if mark == self._opens and not self._calling:
                return self._open()
            self._calling = not self._calling

    def _open(self) -> None:
        self.state, self._begun_at = State.OPEN, self._seen
        self._force_at = None if self._left is None else self._seen + self._left

    def _look_for_close(self) -> None:
        at = self._said.find(self._closes)
        if at < 0:
            self._said = self._said[max(0, len(self._said) - len(self._closes) + 1) :]
            return
        self.state, self._said = State.OVER, self._said[at + len(self._closes) :] if self._again else b""
        if self._left is not None:
            self._left = max(0, self._left - (self._seen - self._begun_at))
        if self._force_at is not None and self._seen <= self._force_at:
            self._force_at = None  # the model closed it itself

    def begins_with(self, token: int) -> bool:
        """Whether more than white space came with `token`, the last one."""
        return bool(self._bytes(token).strip())

    def thinks(self, output: int) -> bool:
        """Whether the next token, number `output`, is none of the answer proper, or may be none."""
        return self.state is not State.OVER or self.forced(output) is not None

    def forced(self, output: int) -> int | None:
        """The id that token number `output` of the answer must be; None where it is drawn, or not `known` yet."""
        if self._force_at is None or self._seen < self._force_at:
            return None
        at = output - self._force_at
        return self.closing[at] if 0 <= at < len(self.closing) else None

    @property
    def free_until(self) -> float:
        """The first output that cannot be drawn before all tokens ahead of it are known; inf where there is none."""
        if self._left is None:
            return math.inf
        if self.state is State.AHEAD:
            return self._seen + 1 + self._left
        free, left = self._seen, self._left
        if self._force_at is not None:
            if self._seen < self._force_at:
                return self._force_at
            free, left = max(free, self._force_at + len(self.closing)), 0
        return free + 1 + left if self._again else math.inf
