"""A sequence on its way through a grammar: which ids may come next, and when it is over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.constrain.compiling import Compiling
from drut.constrain.reasons import reason
from drut.constrain.thought import State, ThoughtWatch
from drut.errors import RequestError
from drut.kernels.descriptor import mask_words

if TYPE_CHECKING:
    from llguidance import LLMatcher

ALL = np.int32(-1)
Mask = NDArray[np.int32]
MOST_AHEAD = 256  # forced tokens that a grammar is taken on by at a time: between two steps, so all streams wait


class Run(NamedTuple):
    """What a grammar leaves no choice about: from token number `start` of the answer on, these."""

    start: int = 0
    ids: tuple[int, ...] = ()


class Guide:
    """Takes the tokens one by one and fills masks. Used by one thread at a time.

    The grammar is of what follows the thought, if there is one; in that all but the end of the answer is allowed.
    `ended` is the number of tokens after which nothing more can come, which may count forced ones ahead; `failure` why
    it cannot go on. With `ignore_eos` the ids that end an answer are not allowed, unless nothing else is.

    Where the grammar forces text, its tokens are those that the tokenizer would spell it with, and the next mask allows
    the first of them alone. Which they are is settled once, when the token before them is taken, so it depends on the
    answer alone, whether they are then taken one by one or all at once.
    """

    def __init__(self, compiling: Compiling, thought: ThoughtWatch | None, ends: frozenset[int], vocab: int, *,
                 ignore_eos: bool = False) -> None:
        """`thought`: that of another answer, of which this one's is a twin; `ends`, all below `vocab`: ids
        that end an answer."""
        self._compiling, self._thought = compiling, thought
        self._ends, self._ignore_eos = sorted(ends), ignore_eos
        self._vocab = vocab
        self._scratch = np.zeros(mask_words(vocab + (not ends)), np.int32)  # without an end the library has one more id
        self._matcher: LLMatcher | None = None
        self.ended: int | None = None
        self.failure: RequestError | None = None
        self._start()

    @property
    def ready(self) -> bool:
        """Whether its grammar is compiled, or never will be."""
        return self._matcher is not None or self._compiling.done

    def when_ready(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, from any thread, once the grammar is compiled or has failed; not if it only takes too long."""
        self._compiling.future.add_done_callback(lambda _: wake())

    def open(self) -> None:
        """Takes a matcher of its own, once; waits where the grammar is not compiled yet. Sets `failure`."""
        if self._matcher is not None or self.failure is not None:
            return
        try:
            self._matcher = self._compiling.result().deep_copy()
        except RequestError as error:
            self.failure = error
        self._look_ahead()

    @property
    def over(self) -> bool:
        """Whether nothing can follow the tokens it has."""
        return self.ended_by(self.taken)

    @property
    def breaks_off(self) -> bool:
        """Whether more is known of what follows than that it fits: that nothing does, or what it is."""
        return self.failure is not None or self.over or bool(self.forced(self.taken))

    def ended_by(self, count: int) -> bool:
        """Whether it had ended when the answer had `count` tokens; a step on top may have brought more."""
        return self.ended is not None and self.ended <= count

    def forced(self, output: int) -> tuple[int, ...]:
        """The ids that follow from token number `output` of the answer on, as many as are known. Any thread may ask."""
        start, ids = self._run
        return ids[output - start :] if start <= output else ()

    @property
    def taken(self) -> int:
        """Tokens of the answer so far."""
        return len(self._tokens)

    def take(self, token: int) -> None:
        """The answer goes on with `token`, which the last mask allowed."""
        run = self.forced(len(self._tokens))
        self._tokens.append(token)
        watch = self._watch
        before = watch.state if watch is not None else State.OVER
        thinks = watch is not None and watch.push(token)
        if self.failure is not None or (self.ended is not None and not run):
            return
        if run and token != run[0]:
            return self._fail("another token was forced")
        if not run and not thinks:
            self._answer(token)
        elif watch is not None and before is State.AHEAD:
            self._open_with(token, watch)
        if len(run) <= 1:
            self._look_ahead()

    def catch_up(self, count: int) -> None:
        """Takes forced tokens until the answer has `count`."""
        while len(self._tokens) < count and (run := self.forced(len(self._tokens))):
            self.take(run[0])

    def fill(self, mask: Mask) -> None:
        """Sets the bits of the ids that may come next, (words,): all where it has ended or failed."""
        run = self.forced(len(self._tokens))
        if run and self.failure is None:
            mask[:] = 0
            return _allow(mask, run[0])
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

    def accepts(self, token: int) -> bool:
        """Whether the next mask surely allows `token`. Where this says no, a mask may still allow it."""
        run = self.forced(len(self._tokens))
        if self.failure is not None or (self.ended is not None and not run):
            return True
        if run:
            return token == run[0]
        watch = self._watch
        if watch is None or not watch.thinks(len(self._tokens)):
            if token in self._ends:
                return not self._ignore_eos and (self._matcher is None or self._matcher.is_accepting())
            return self._may_take(token)
        if watch.state is State.AHEAD:
            return False
        return token not in self._ends or watch.forced(len(self._tokens)) is not None

    def offer(self, token: int) -> bool:
        """Takes `token` if the next mask surely allows it; else takes nothing."""
        matcher = self._matcher
        plain = self._watch is None and self.failure is None and self.ended is None and token not in self._ends
        if matcher is None or not plain or self.forced(len(self._tokens)):
            allowed = self.accepts(token)
            if allowed:
                self.take(token)
            return allowed
        if not matcher.try_consume_tokens([token]):  # asks and takes in one
            return False
        self._tokens.append(token)
        if matcher.is_stopped():
            self.ended = len(self._tokens)
        self._look_ahead()
        return True

    def truncate(self, count: int) -> None:
        """Forgets all tokens but the first `count`."""
        if count >= len(self._tokens):
            return
        kept = self._tokens[:count]
        if self._matcher is not None:
            self._matcher.reset()
        self.ended = None
        self._start()
        self._look_ahead()
        for token in kept:
            self.take(token)

    def _start(self) -> None:
        self._watch = self._thought.twin() if self._thought is not None else None
        self._tokens: list[int] = []
        self._run = Run()
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
            self._fail(matcher.get_error())
        elif matcher.is_stopped():
            self.ended = len(self._tokens)

    def _look_ahead(self) -> None:
        """Takes the grammar on through what it forces now, but for an end of the answer, which may be held back."""
        matcher, start, watch = self._matcher, len(self._tokens), self._watch
        if matcher is None or self.ended is not None or self.failure is not None:
            return
        if watch is not None and watch.thinks(start):
            return
        ids = tuple(takewhile(self._is_text, matcher.compute_ff_tokens()[:MOST_AHEAD]))
        if not ids and not matcher.is_error():
            return
        if matcher.try_consume_tokens(list(ids)) < len(ids) or matcher.is_error():
            return self._fail(matcher.get_error())
        self._run = Run(start, ids)
        if matcher.is_stopped():
            self.ended = start + len(ids)

    def _is_text(self, token: int) -> bool:
        return token not in self._ends and token < self._vocab

    def _fill_answer(self, mask: Mask) -> None:
        matcher = self._matcher
        if matcher is None:
            return
        made = self._scratch
        matcher.unsafe_compute_mask_ptr(made.ctypes.data, made.nbytes)  # without the interpreter's lock
        if matcher.is_error():
            return self._fail(matcher.get_error())
        mask[:] = made[: len(mask)]
        if self._ignore_eos:
            for token in self._ends:
                _forbid(mask, token)
            if not mask.any():
                mask[:] = made[: len(mask)]

    def _fail(self, why: str) -> None:
        self.failure = RequestError(f"the grammar broke off after {len(self._tokens)} tokens: {reason(why)}")


def _allow(mask: Mask, token: int) -> None:
    mask.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)


def _forbid(mask: Mask, token: int) -> None:
    mask.view(np.uint32)[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
