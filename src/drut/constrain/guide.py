"""A sequence on its way through a grammar: which ids may come next, and when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from drut.constrain.compiling import Compiling
from drut.constrain.thought import State, ThoughtWatch
from drut.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher

ALL = np.int32(-1)
Mask = NDArray[np.int32]


class Guide:
    """Takes the tokens one by one and fills masks. Used by one thread at a time.

    The grammar is of what follows the thought, if there is one; in that all but the end of the answer is allowed.
    `ended` is the number of tokens after which nothing more can come; `failure` why it cannot go on. With
    `ignore_eos` the ids that end an answer are not allowed, unless nothing else is.
    """

    def __init__(self, compiling: Compiling, thought: ThoughtWatch | None, ends: frozenset[int], words: int, *,
                 ignore_eos: bool = False) -> None:
        """`thought`: that of another answer, of which this one's is a twin; `words`: of the grammar's masks."""
        self._compiling, self._thought = compiling, thought
        self._ends, self._ignore_eos = sorted(ends), ignore_eos
        self._scratch = np.zeros(words, np.int32)
        self._matcher: LLMatcher | None = None
        self.ended: int | None = None
        self.failure: RequestError | None = None
        self._start()

    @property
    def ready(self) -> bool:
        """Whether its grammar is compiled, or never will be."""
        return self._matcher is not None or self._compiling.done

    def wait(self, seconds: float) -> None:
        """Until it is ready, but not longer than that."""
        self._compiling.wait(seconds)

    def open(self) -> None:
        """Takes a matcher of its own, once; waits where the grammar is not compiled yet. Sets `failure`."""
        if self._matcher is not None or self.failure is not None:
            return
        try:
            self._matcher = self._compiling.result().deep_copy()
        except RequestError as error:
            self.failure = error

    def ended_by(self, count: int) -> bool:
        """Whether it had ended when the answer had `count` tokens; a step on top may have brought more."""
        return self.ended is not None and self.ended <= count

    @property
    def taken(self) -> int:
        """Tokens of the answer so far."""
        return len(self._tokens)

    def take(self, token: int) -> None:
        """The answer goes on with `token`, which the last mask allowed."""
        self._tokens.append(token)
        if self.ended is not None or self.failure is not None:
            return
        watch = self._watch
        before = watch.state if watch is not None else State.OVER
        if watch is None or not watch.push(token):
            self._answer(token)
        elif before is State.AHEAD:
            self._open_with(token, watch)

    def fill(self, mask: Mask) -> None:
        """Sets the bits of the ids that may come next, (words,): all where it has ended or failed."""
        mask[:] = ALL
        if self.ended is not None or self.failure is not None:
            return
        watch = self._watch
        if watch is None or not watch.thinks(len(self._tokens)):
            self._fill_answer(mask)
        elif watch.state is State.AHEAD:
            if self._opens_grammar:
                self._fill_answer(mask)
            else:
                mask[:] = 0
            if self._may_open:
                _allow(mask, watch.opening[self._matched])
        elif watch.forced(len(self._tokens)) is None:
            for token in self._ends:
                _forbid(mask, token)

    def truncate(self, count: int) -> None:
        """Forgets all tokens but the first `count`."""
        if count >= len(self._tokens):
            return
        kept = self._tokens[:count]
        if self._matcher is not None:
            self._matcher.reset()
        self.ended = None
        self._start()
        for token in kept:
            self.take(token)

    def _start(self) -> None:
        self._watch = self._thought.twin() if self._thought is not None else None
        self._tokens: list[int] = []
        self._matched = 0  # tokens of the opening of a thought that have come
        self._may_open = self._opens_grammar = True  # whether what has come may become a thought, or the answer

    def _open_with(self, token: int, watch: ThoughtWatch) -> None:
        """Takes what may become a thought. The masks have let nothing through but its opening or the answer."""
        if token == watch.opening[self._matched]:
            self._matched += 1
        elif self._matched or watch.begins_with(token):
            self._may_open = False  # spelled in a way of its own: only the grammar knows how that goes on
        if watch.state is State.AHEAD:
            self._opens_grammar = self._opens_grammar and self._may_take(token)
            if self._opens_grammar:
                self._answer(token)
        elif self._matcher is not None:
            self._matcher.reset()

    def _may_take(self, token: int) -> bool:
        return self._matcher is None or self._matcher.validate_tokens([token]) == 1

    def _answer(self, token: int) -> None:
        matcher = self._matcher
        if matcher is None:
            return
        if not matcher.consume_token(token):
            self._fail(matcher)
        elif matcher.is_stopped():
            self.ended = len(self._tokens)

    def _fill_answer(self, mask: Mask) -> None:
        matcher = self._matcher
        if matcher is None:
            return
        made = self._scratch
        matcher.unsafe_compute_mask_ptr(made.ctypes.data, made.nbytes)  # without the interpreter's lock
        if matcher.is_error():
            return self._fail(matcher)
        mask[:] = made[: len(mask)]
        if self._ignore_eos:
            for token in self._ends:
                _forbid(mask, token)
            if not mask.any():
                mask[:] = made[: len(mask)]

    def _fail(self, matcher: LLMatcher) -> None:
        line = " ".join(matcher.get_error().split())
        self.failure = RequestError(f"the grammar broke off after {len(self._tokens)} tokens: {line[:200]}")


def _allow(mask: Mask, token: int) -> None:
    mask.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)


def _forbid(mask: Mask, token: int) -> None:
    mask.view(np.uint32)[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
