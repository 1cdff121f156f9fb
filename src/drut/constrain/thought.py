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

    `begun`: the prompt ends inside the thought. After `budget` tokens of it the text `closing` is forced, which must
    hold `closes`; then the answer goes on by itself.
    """

    opens: str
    closes: str
    begun: bool = False
    budget: int | None = None  # tokens after `opens`; None: as many as the model likes
    closing: str = ""

    def __post_init__(self) -> None:
        for name in ("opens", "closes", "closing"):
            text = getattr(self, name)
            if not isinstance(text, str) or len(text) > MOST_MARK_CHARS or not (text or name == "closing"):
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
                 token_bytes: Callable[[int], bytes]) -> None:
        """`opening`, `closing`: the ids of `thought.opens` and `thought.closing`."""
        self._thought, self._bytes = thought, token_bytes
        self.opening, self.closing = tuple(opening), tuple(closing)
        self._opens, self._closes = thought.opens.encode(), thought.closes.encode()
        self._said = b""  # what may still become a mark
        self._seen = 0  # tokens
        self._force_at: int | None = None  # the output where forcing begins
        self.state = State.AHEAD
        self.tokens = 0  # of the thought with its marks
        if thought.begun:
            self._open()

    @classmethod
    def of(cls, thought: Thought, tokenizer: Tokenizer, hidden: frozenset[int] = frozenset()) -> ThoughtWatch:
        """`hidden`: tokens that the answer's text leaves out; they are no part of it here either, unless they spell a
        mark. RequestError where the vocabulary cannot spell `closing`."""
        opening, closing = (tokenizer.encode_more(text) for text in (thought.opens, thought.closing))
        for text, mark, ids in (("opens", thought.opens, opening), ("closing", thought.closes, closing)):
            if ids and mark.encode() not in b"".join(map(tokenizer.token_bytes, ids)):
                raise RequestError(f"thought.{text}: {tokenizer.name} has no tokens for {mark!r}")
        unseen = hidden.difference(opening, closing, map(tokenizer.id_of, (thought.opens, thought.closes)))
        return cls(thought, opening, closing, lambda i: b"" if i in unseen else tokenizer.token_bytes(i))

    def twin(self) -> ThoughtWatch:
        """A new one for another answer."""
        return ThoughtWatch(self._thought, self.opening, self.closing, self._bytes)

    def push(self, token: int) -> bool:
        """Takes the next token of the answer; True where it is none of the answer proper."""
        before, self._seen = self.state, self._seen + 1
        if before is State.OVER:
            return self.forced(self._seen - 1) is not None  # behind the mark, but still of the closing
        self._said += self._bytes(token)
        if self.state is State.AHEAD:
            self._look_for_opening()
        if self.state is State.OPEN:
            self.tokens = self._seen
            self._look_for_close()
        return self.state is not State.OVER or before is State.OPEN or self.tokens == self._seen

    def _look_for_opening(self) -> None:
        said = self._said = self._said.lstrip()
        if said.startswith(self._opens):
            self._said = said[len(self._opens) :]
            self._open()
        elif not self._opens.startswith(said):
            self.state, self._said = State.OVER, b""

    def _open(self) -> None:
        self.state = State.OPEN
        budget = self._thought.budget
        self._force_at = None if budget is None else self._seen + budget

    def _look_for_close(self) -> None:
        if self._closes in self._said:
            self.state, self._said = State.OVER, b""
            if self._force_at is not None and self._seen <= self._force_at:
                self._force_at = None  # the model closed it itself
        else:
            self._said = self._said[max(0, len(self._said) - len(self._closes) + 1) :]

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
        if self._thought.budget is None:
            return math.inf
        if self.state is State.AHEAD:
            return self._seen + 1 + self._thought.budget
        if self._force_at is None or self._seen >= self._force_at:
            return math.inf
        return self._force_at
