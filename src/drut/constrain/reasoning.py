"""Finds where the reasoning of an output begins and ends, and which tokens a budget forces.

Everything here is a function of the output's own tokens, so it does not depend on batching or preemption.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from drut.errors import RequestError
from drut.model.tokenizer import Tokenizer

MAX_MARK_CHARS = 256
MAX_BUDGET = 1 << 30


@dataclass(frozen=True)
class ReasoningSpec:
    """How a model reasons before it answers: between the marks `opens` and `closes`, at the start of its output.

    `begun`: True if the prompt ends inside the reasoning, None if the prompt ends behind it. After `budget` reasoning
    tokens the text `closing` is forced, which must contain `closes`; then the answer follows. Unless a grammar
    constrains the answer, a further `opens` in it begins another section of reasoning, which has the rest of the
    budget. Between the marks `calls` an `opens` is plain text; an empty second mark of `calls` means that a call lasts
    until the end of the output. Raises RequestError, which names the field, if a field is invalid.
    """

    opens: str
    closes: str
    begun: bool | None = False
    budget: int | None = None  # maximum of tokens after `opens`; None: no limit
    closing: str = ""
    calls: tuple[str, str] = ("", "")  # marks around tool calls; an empty first mark: no calls

    def __post_init__(self) -> None:
        texts = {"opens": self.opens, "closes": self.closes, "closing": self.closing,
                 **{f"calls[{i}]": mark for i, mark in enumerate(self.calls)}}
        for name, text in texts.items():
            empty = not text and name in ("opens", "closes")
            if not isinstance(text, str) or len(text) > MAX_MARK_CHARS or empty:
                raise RequestError(f"reasoning.{name} must be a string of 1 to {MAX_MARK_CHARS} characters")
        if self.budget is None:
            return
        if isinstance(self.budget, bool) or not isinstance(self.budget, int) or not 0 <= self.budget <= MAX_BUDGET:
            raise RequestError(f"reasoning.budget must be an integer from 0 to {MAX_BUDGET}")
        if self.closes not in self.closing:
            raise RequestError(f"reasoning.closing must contain {self.closes!r}, the mark that ends the reasoning")


class ReasoningState(Enum):
    AHEAD = auto()  # the output so far is white space, or a beginning of `opens`
    OPEN = auto()
    OVER = auto()  # closed, or the answer began without reasoning


class ReasoningTracker:
    """Tracks the reasoning of one output, token by token."""

    def __init__(self, reasoning: ReasoningSpec, opening: Sequence[int], closing: Sequence[int],
                 token_bytes: Callable[[int], bytes], *, again: bool = True) -> None:
        """`opening`, `closing`: the token ids of `reasoning.opens` and `reasoning.closing`; `again`: whether further
        sections of reasoning may follow the first."""
        self._reasoning, self._bytes, self._again = reasoning, token_bytes, again
        self.opening, self.closing = tuple(opening), tuple(closing)
        self._opens, self._closes = reasoning.opens.encode(), reasoning.closes.encode()
        self._calls = tuple(mark.encode() for mark in reasoning.calls)
        self._calling = False  # the output is between the marks of a call
        self._tail = b""  # the end of the output, which may still become a mark
        self._seen = 0  # tokens pushed
        self._left = reasoning.budget  # the rest of the budget when the current section began
        self._begun_at = 0  # tokens before the current section
        self._force_at: int | None = None  # index of the first forced token
        self.state = ReasoningState.AHEAD if reasoning.begun is not None else ReasoningState.OVER
        self.tokens = 0  # reasoning tokens, marks included
        if reasoning.begun:
            self._open()

    @classmethod
    def of(cls, reasoning: ReasoningSpec, tokenizer: Tokenizer, hidden: frozenset[int] = frozenset(), *,
           again: bool = True) -> ReasoningTracker:
        """Returns a tracker for outputs of `tokenizer`.

        `hidden`: tokens that the output's text leaves out; the tracker ignores their bytes unless they spell a mark.
        Raises RequestError if the vocabulary cannot spell `opens` or `closing`.
        """
        opening, closing = (tokenizer.encode_more(text) for text in (reasoning.opens, reasoning.closing))
        for text, mark, ids in (("opens", reasoning.opens, opening), ("closing", reasoning.closes, closing)):
            if ids and mark.encode() not in b"".join(map(tokenizer.token_bytes, ids)):
                raise RequestError(f"reasoning.{text}: {tokenizer.name} has no tokens for {mark!r}")
        marks = map(tokenizer.id_of, (reasoning.opens, reasoning.closes, *reasoning.calls))
        unseen = hidden.difference(opening, closing, marks)
        return cls(reasoning, opening, closing, lambda i: b"" if i in unseen else tokenizer.token_bytes(i), again=again)

    def fork(self) -> ReasoningTracker:
        """Returns a new tracker, at the start of another output."""
        return ReasoningTracker(self._reasoning, self.opening, self.closing, self._bytes, again=self._again)

    def copy(self) -> ReasoningTracker:
        """Returns a tracker of the same output, at the same place."""
        return copy.copy(self)  # every field that changes is replaced, none is written into

    def push(self, token: int) -> bool:
        """Appends the next token of the output; returns True if the token is not part of the answer."""
        before, forced = self.state, self.forced(self._seen) is not None
        self._seen += 1
        if before is ReasoningState.OVER and (forced or not self._again):
            return forced  # behind the mark, but still part of the forced closing
        self._tail += self._bytes(token)
        if before is ReasoningState.AHEAD:
            self._look_for_opening()
        elif before is ReasoningState.OVER:
            self._look_for_more()
        thinks = ReasoningState.OPEN in (before, self.state)
        if thinks:
            self.tokens = self._seen if before is ReasoningState.AHEAD else self.tokens + 1
        if self.state is ReasoningState.OPEN:
            self._look_for_close()
        return thinks or self.state is ReasoningState.AHEAD

    def _look_for_opening(self) -> None:
        tail = self._tail = self._tail.lstrip()
        if tail.startswith(self._opens):
            self._tail = tail[len(self._opens) :]
            self._open()
        elif not self._opens.startswith(tail):
            self.state, self._tail, self._again = ReasoningState.OVER, b"", False

    def _look_for_more(self) -> None:
        """Looks in the answer for the mark of a further section, outside calls."""
        opens_call, closes_call = self._calls
        while True:
            marks = (closes_call,) if self._calling else (self._opens, opens_call)
            found = {mark: at for mark in marks if mark and (at := self._tail.find(mark)) >= 0}
            if not found:
                longest = max(map(len, marks))
                self._tail = self._tail[max(0, len(self._tail) - longest + 1) :] if longest else b""
                return
            mark = min(found, key=lambda mark: found[mark])
            self._tail = self._tail[found[mark] + len(mark) :]
            if mark == self._opens and not self._calling:
                return self._open()
            self._calling = not self._calling

    def _open(self) -> None:
        self.state, self._begun_at = ReasoningState.OPEN, self._seen
        self._force_at = None if self._left is None else self._seen + self._left

    def _look_for_close(self) -> None:
        at = self._tail.find(self._closes)
        if at < 0:
            self._tail = self._tail[max(0, len(self._tail) - len(self._closes) + 1) :]
            return
        self.state, self._tail = ReasoningState.OVER, self._tail[at + len(self._closes) :] if self._again else b""
        if self._left is not None:
            self._left = max(0, self._left - (self._seen - self._begun_at))
        if self._force_at is not None and self._seen <= self._force_at:
            self._force_at = None  # the model closed it itself

    def begins_with(self, token: int) -> bool:
        """Whether `token`, the last one, has more than white space."""
        return bool(self._bytes(token).strip())

    def thinks(self, output: int) -> bool:
        """Whether the next token, at index `output`, is not part of the answer, or may not be."""
        return self.state is not ReasoningState.OVER or self.forced(output) is not None

    def forced(self, output: int) -> int | None:
        """Returns the id that the token at index `output` must have; None if it is sampled, or not known yet."""
        if self._force_at is None or self._seen < self._force_at:
            return None
        at = output - self._force_at
        return self.closing[at] if 0 <= at < len(self.closing) else None

    def forced_along(self, output: int, drafts: Sequence[int]) -> list[int | None]:
        """Returns `forced` for the token at index `output`, and for the token after each of `drafts`."""
        found, ahead = [self.forced(output)], self.copy() if drafts else self
        for i, draft in enumerate(drafts, output + 1):
            ahead.push(draft)
            found.append(ahead.forced(i))
        return found

    @property
    def first_dependent_index(self) -> float:
        """Index of the first token that depends on the values of all tokens before it, because the budget may force
        it; inf if there is none. The host must have seen those tokens before a step may compute this one."""
        if self._left is None:
            return math.inf
        if self.state is ReasoningState.AHEAD:
            return self._seen + 1 + self._left
        free, left = self._seen, self._left
        if self._force_at is not None:
            if self._seen < self._force_at:
                return self._force_at
            free, left = max(free, self._force_at + len(self.closing)), 0
        return free + 1 + left if self._again else math.inf
