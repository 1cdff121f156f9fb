"""The grammar matcher of one output: which token ids may come next, and when the output is complete."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.constrain.compiling import Compiling
from drut.constrain.reasoning import ReasoningState, ReasoningTracker
from drut.constrain.reasons import reason
from drut.errors import RequestError
from drut.kernels.descriptor import mask_words

if TYPE_CHECKING:
    from llguidance import LLMatcher

ALL = np.int32(-1)
Mask = NDArray[np.int32]
MAX_AHEAD = 256  # maximum of forced tokens found at a time. It runs between two steps, so all streams wait for it


class ForcedRun(NamedTuple):
    """Tokens that the grammar allows no alternative to: `ids`, from index `start` of the output on."""

    start: int = 0
    ids: tuple[int, ...] = ()


class GrammarMatcher:
    """Matches the tokens of one output against a grammar and fills token masks.

    The grammar constrains what follows the reasoning; inside the reasoning every token is allowed except an end of the
    output. `ended` is the number of tokens after which nothing can follow; it may count forced tokens that were not
    taken yet. `failure` is the error after which the matcher constrains nothing. With `ignore_eos` the end tokens are
    not allowed, unless nothing else is.

    If the grammar forces text, the forced tokens are the tokenizer's spelling of it, and the next mask allows only the
    first of them. They are computed once, when the token before them is taken. So they depend on the output alone, and
    not on whether they are then taken one by one or all at once.

    Threads: one thread at a time may use a matcher; `forced` is an exception, which any thread may call.
    """

    def __init__(self, compiling: Compiling, reasoning: ReasoningTracker | None, ends: frozenset[int], vocab: int, *,
                 ignore_eos: bool = False) -> None:
        """`reasoning`: a tracker to fork for this output; `ends`: token ids that end an output, all below `vocab`."""
        self._compiling, self._reasoning = compiling, reasoning
        self._ends, self._ignore_eos = sorted(ends), ignore_eos
        self._vocab = vocab
        self._scratch = np.zeros(mask_words(vocab + (not ends)), np.int32)  # without an end token the library adds one
        self._matcher: LLMatcher | None = None
        self.ended: int | None = None
        self.failure: RequestError | None = None
        self._start()

    @property
    def ready(self) -> bool:
        """Whether compiling the grammar is over: it succeeded or failed."""
        return self._matcher is not None or self._compiling.done

    def when_ready(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, on any thread, once compiling has succeeded or failed; a timeout alone does not call it."""
        self._compiling.future.add_done_callback(lambda _: wake())

    def open(self) -> None:
        """Copies the compiled grammar's matcher, once; waits until the grammar is compiled. Sets `failure`."""
        if self._matcher is not None or self.failure is not None:
            return
        try:
            self._matcher = self._compiling.result().deep_copy()
        except RequestError as error:
            self.failure = error
        self._look_ahead()

    @property
    def over(self) -> bool:
        """Whether nothing can follow the tokens so far."""
        return self.ended_by(self.taken)

    @property
    def needs_host(self) -> bool:
        """Whether a burst of steps must stop: the output ended, the matcher failed, or the next tokens are forced."""
        return self.failure is not None or self.over or bool(self.forced(self.taken))

    def ended_by(self, count: int) -> bool:
        """Whether the output was complete at `count` tokens. An in-flight step may have added more since."""
        return self.ended is not None and self.ended <= count

    def forced(self, output: int) -> tuple[int, ...]:
        """Returns the forced ids from index `output` of the output on, as many as are known. Any thread may call it."""
        start, ids = self._run
        return ids[output - start :] if start <= output else ()

    @property
    def taken(self) -> int:
        """The number of output tokens so far."""
        return len(self._tokens)

    def advance(self, token: int) -> None:
        """Appends `token`, which the last mask allowed, to the output."""
        run = self.forced(len(self._tokens))
        self._tokens.append(token)
        watch = self._watch
        before = watch.state if watch is not None else ReasoningState.OVER
        thinks = watch is not None and watch.push(token)
        if self.failure is not None or (self.ended is not None and not run):
            return
        if run and token != run[0]:
            return self._fail("another token was forced")
        if not run and not thinks:
            self._answer(token)
        elif watch is not None and before is ReasoningState.AHEAD:
            self._open_with(token, watch)
        if len(run) <= 1:
            self._look_ahead()

    def catch_up(self, count: int) -> None:
        """Appends forced tokens until the output has `count` tokens."""
        while len(self._tokens) < count and (run := self.forced(len(self._tokens))):
            self.advance(run[0])

    def fill(self, mask: Mask) -> None:
        """Sets in `mask` (words,) the bits of the ids that may come next: all bits if the output ended or failed."""
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
        elif watch.state is ReasoningState.AHEAD:
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
        """Returns True only if the next mask allows `token`; False does not mean that the mask forbids it."""
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
        if watch.state is ReasoningState.AHEAD:
            return False
        return token not in self._ends or watch.forced(len(self._tokens)) is not None

    def try_advance(self, token: int) -> bool:
        """Appends `token` and returns True if `accepts` returns True for it; else changes nothing and returns False."""
        matcher = self._matcher
        plain = self._watch is None and self.failure is None and self.ended is None and token not in self._ends
        if matcher is None or not plain or self.forced(len(self._tokens)):
            allowed = self.accepts(token)
            if allowed:
                self.advance(token)
            return allowed
        if not matcher.try_consume_tokens([token]):  # one call that checks and consumes
            return False
        self._tokens.append(token)
        if matcher.is_stopped():
            self.ended = len(self._tokens)
        self._look_ahead()
        return True

    def copy(self) -> GrammarMatcher:
        """Returns an independent matcher of the same output."""
        other = copy.copy(self)
        other._matcher = self._matcher.deep_copy() if self._matcher is not None else None
        other._watch = self._watch.copy() if self._watch is not None else None
        other._tokens, other._scratch = list(self._tokens), np.zeros_like(self._scratch)
        return other

    def fill_along(self, masks: Sequence[Mask], drafts: Sequence[int]) -> None:
        """Fills the mask of the next token, and the mask after each of `drafts`, all bits after one that is not
        allowed."""
        self.fill(masks[0])
        if not drafts:
            return
        ahead = self.copy()
        for i, draft in enumerate(drafts):
            if not allows(masks[i], draft):
                for mask in masks[i + 1 :]:
                    mask[:] = ALL
                return
            ahead.advance(draft)
            ahead.fill(masks[i + 1])

    def may_accept(self, drafts: Sequence[int]) -> int:
        """Returns how many leading `drafts` can follow the output: an upper bound that takes no mask. For a matcher
        that has all tokens of the output."""
        matcher, taken = self._matcher, len(self._tokens)
        thinks = self._watch is not None and self._watch.thinks(taken)
        if matcher is None or thinks or self.failure is not None:
            return len(drafts)
        run = self.forced(taken)
        for i, (draft, token) in enumerate(zip(drafts, run, strict=False)):
            if draft != token:
                return i
        if self.ended is not None:
            return len(drafts)
        text = list(takewhile(self._is_text, drafts[len(run) :]))
        fits = matcher.validate_tokens(text)
        return len(run) + fits + (fits == len(text) and len(run) + fits < len(drafts))  # an end may follow

    def truncate(self, count: int) -> None:
        """Removes all tokens but the first `count`."""
        if count >= len(self._tokens):
            return
        kept = self._tokens[:count]
        if self._matcher is not None:
            self._matcher.reset()
        self.ended = None
        self._start()
        self._look_ahead()
        for token in kept:
            self.advance(token)

    def _start(self) -> None:
        self._watch = self._reasoning.fork() if self._reasoning is not None else None
        self._tokens: list[int] = []
        self._run = ForcedRun()
        self._matched = 0  # tokens of the reasoning's opening mark so far
        self._may_open = self._opens_grammar = True  # whether the output so far may become reasoning, or the answer

    def _open_with(self, token: int, watch: ReasoningTracker) -> None:
        """Appends a token that may begin the reasoning. The masks allowed only its opening mark or the answer."""
        if token == watch.opening[self._matched]:
            self._matched += 1
        elif self._matched or watch.begins_with(token):
            self._may_open = False  # not the mark's own spelling: only the grammar decides what may follow
        if watch.state is ReasoningState.AHEAD:
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
        """Consumes in the grammar the tokens that it forces now, except an end of the output, which may be withheld."""
        matcher, start, watch = self._matcher, len(self._tokens), self._watch
        if matcher is None or self.ended is not None or self.failure is not None:
            return
        if watch is not None and watch.thinks(start):
            return
        ids = tuple(takewhile(self._is_text, matcher.compute_ff_tokens()[:MAX_AHEAD]))
        if not ids and not matcher.is_error():
            return
        if matcher.try_consume_tokens(list(ids)) < len(ids) or matcher.is_error():
            return self._fail(matcher.get_error())
        self._run = ForcedRun(start, ids)
        if matcher.is_stopped():
            self.ended = start + len(ids)

    def _is_text(self, token: int) -> bool:
        return token not in self._ends and token < self._vocab

    def _fill_answer(self, mask: Mask) -> None:
        matcher = self._matcher
        if matcher is None:
            return
        made = self._scratch
        matcher.unsafe_compute_mask_ptr(made.ctypes.data, made.nbytes)  # releases the interpreter's lock
        if matcher.is_error():
            return self._fail(matcher.get_error())
        mask[:] = made[: len(mask)]
        if self._ignore_eos:
            for token in self._ends:
                _forbid(mask, token)
            if not mask.any():
                mask[:] = made[: len(mask)]

    def _fail(self, why: str) -> None:
        self.failure = RequestError(f"the grammar failed after {len(self._tokens)} tokens: {reason(why)}")


def allows(mask: Mask, token: int) -> bool:
    """Returns whether a mask allows `token`."""
    return bool(mask.view(np.uint32)[token // 32] >> np.uint32(token % 32) & np.uint32(1))


def _allow(mask: Mask, token: int) -> None:
    mask.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)


def _forbid(mask: Mask, token: int) -> None:
    mask.view(np.uint32)[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
