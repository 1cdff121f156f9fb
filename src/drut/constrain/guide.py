"""A sequence on its way through a grammar: which ids may come next, and when it is over."""

from __future__ import annotations

from enum import Enum, auto

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from drut.constrain.compiling import Compiling
from drut.constrain.constraint import Thought
from drut.errors import RequestError

ALL = np.int32(-1)
Mask = NDArray[np.int32]


class Phase(Enum):
    """Of an answer: where a thought may begin, in it, where its end is forced, and after it."""

    OPENING = auto()
    THINKING = auto()
    CLOSING = auto()
    ANSWERING = auto()


class Guide:
    """Takes the tokens one by one and fills masks. Used by one thread at a time.

    `ended` is the number of tokens after which nothing more can come; `failure` why it cannot go on. With
    `ignore_eos` the ids that end an answer are not allowed, unless nothing else is.
    """

    def __init__(self, compiling: Compiling | None, thought: Thought | None, ends: frozenset[int], words: int, *,
                 ignore_eos: bool = False) -> None:
        """`compiling`: None where there is no grammar and only the thought is minded; `words`: of its masks."""
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
        return self._compiling is None or self._matcher is not None or self._compiling.done

    def wait(self, seconds: float) -> None:
        """Until it is ready, but not longer than that."""
        if self._compiling is not None:
            self._compiling.wait(seconds)

    def open(self) -> None:
        """Takes a matcher of its own, once; waits where the grammar is not compiled yet. Sets `failure`."""
        if self._compiling is None or self._matcher is not None or self.failure is not None:
            return
        try:
            self._matcher = self._compiling.result().deep_copy()
        except RequestError as error:
            self.failure = error

    @property
    def free(self) -> bool:
        """Whether all that follows is allowed."""
        return self._compiling is None and self._phase is Phase.ANSWERING

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
        thought = self._thought
        match self._phase:
            case Phase.OPENING if thought is not None:
                self._open_with(token, thought)
            case Phase.THINKING | Phase.CLOSING if thought is not None:
                self._think(token, thought)
            case _:
                self._answer(token)

    def fill(self, mask: Mask) -> None:
        """Sets the bits of the ids that may come next, (words,): all where it has ended or failed."""
        mask[:] = ALL
        if self.ended is not None or self.failure is not None:
            return
        thought = self._thought
        match self._phase:
            case Phase.OPENING if thought is not None:
                if self._opens_grammar:
                    self._fill_answer(mask)
                else:
                    mask[:] = 0
                _allow(mask, thought.begin[self._matched])
            case Phase.THINKING:
                for token in self._ends:
                    _forbid(mask, token)
            case Phase.CLOSING if thought is not None:
                mask[:] = 0
                _allow(mask, thought.end[self._matched])
            case _:
                self._fill_answer(mask)

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
        thought = self._thought
        self._tokens: list[int] = []
        self._thoughts = self._matched = 0  # tokens of thought; of the marker that is looked for, those that have come
        self._opens_grammar = True  # while a thought may begin: whether what has come may be the answer too
        self._phase = Phase.ANSWERING if thought is None else Phase.OPENING if thought.begin else Phase.THINKING
        if thought is not None and self._phase is Phase.THINKING and thought.within == 0:
            self._phase = Phase.CLOSING

    def _open_with(self, token: int, thought: Thought) -> None:
        if token != thought.begin[self._matched]:
            self._phase = Phase.ANSWERING
            return self._answer(token)
        self._matched += 1
        if self._matched < len(thought.begin):
            self._opens_grammar = self._opens_grammar and self._may_take(token)
            if self._opens_grammar:
                self._answer(token)
            return
        if self._matcher is not None:
            self._matcher.reset()
        self._matched = 0
        self._phase = Phase.CLOSING if thought.within == 0 else Phase.THINKING

    def _may_take(self, token: int) -> bool:
        return self._matcher is None or self._matcher.validate_tokens([token]) == 1

    def _think(self, token: int, thought: Thought) -> None:
        self._thoughts += 1
        self._matched = _overlap((*thought.end[: self._matched], token), thought.end)
        if self._matched == len(thought.end):
            self._phase = Phase.ANSWERING
        elif thought.within is not None and self._thoughts >= thought.within:
            self._phase = Phase.CLOSING

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


def _overlap(seen: tuple[int, ...], marker: tuple[int, ...]) -> int:
    """Length of the longest end of `seen` that begins `marker`."""
    return next(n for n in range(min(len(seen), len(marker)), -1, -1) if seen[len(seen) - n :] == marker[:n])


def _allow(mask: Mask, token: int) -> None:
    mask.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)


def _forbid(mask: Mask, token: int) -> None:
    mask.view(np.uint32)[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
