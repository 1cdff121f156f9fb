"""Walks through grammars without a model: what masks allow, and answers that a chooser makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from drut.constrain import Constraint, ReasoningSpec
from drut.constrain.grammar_compiler import GrammarCompiler
from drut.constrain.grammar_matcher import GrammarMatcher
from drut.constrain.reasoning import ReasoningTracker
from drut.kernels.descriptor import mask_words
from drut.model.model import open_model
from drut.model.tokenizer import Tokenizer

Choose = Callable[[Sequence[int]], int]


class Walk(NamedTuple):
    """An answer: its ids, its text without the end, and whether the grammar was done with it."""

    ids: list[int]
    text: str
    over: bool


class Walker:
    """Grammars over one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, *, cache_bytes: int = 1 << 28, seconds: float = 120) -> None:
        self.tokenizer, self.vocab = tokenizer, vocab
        self._mask = np.zeros(mask_words(vocab), np.int32)
        self.eos = frozenset(i for i in tokenizer.eos_ids if i < vocab)
        self.grammars = GrammarCompiler(tokenizer, vocab, self.eos, cache_bytes=cache_bytes, seconds=seconds)

    def guide(self, constraint: Constraint, reasoning: ReasoningSpec | None = None, **settings: bool) -> GrammarMatcher:
        """Open. RequestError where the constraint is no good."""
        watch = ReasoningTracker.of(reasoning, self.tokenizer, again=False) if reasoning is not None else None
        guide = self.grammars.guide(constraint, watch, **settings)
        guide.open()
        if guide.failure is not None:
            raise guide.failure
        return guide

    def allowed(self, guide: GrammarMatcher) -> list[int]:
        guide.fill(self._mask)
        return np.flatnonzero(np.unpackbits(self._mask.view(np.uint8), count=self.vocab, bitorder="little")).tolist()

    def allows(self, guide: GrammarMatcher, token: int) -> bool:
        guide.fill(self._mask)
        return bool(self._mask.view(np.uint32)[token // 32] >> np.uint32(token % 32) & np.uint32(1))

    def walk(self, constraint: Constraint, choose: Choose, most: int = 500, **settings: bool) -> Walk:
        """Until the grammar is over, or `most` tokens are drawn."""
        guide, ids = self.guide(constraint, **settings), list[int]()
        while not guide.over and len(ids) < most:
            allowed = self.allowed(guide)
            assert allowed, "a mask that allows nothing"
            token = choose(allowed)
            guide.advance(token)
            assert guide.failure is None, guide.failure
            ids.append(token)
        return Walk(ids, self.tokenizer.decode(i for i in ids if i not in self.eos), guide.over)

    def accepts(self, constraint: Constraint, text: str) -> bool:
        """Whether an answer can be this text and no more."""
        guide = self.guide(constraint)
        for token in self.tokenizer.encode(text, add_special=False, parse_special=False):
            if guide.over or not (guide.accepts(token) or self.allows(guide, token)):
                return False
            guide.advance(token)
            if guide.failure is not None:
                return False
        return guide.over or self.allows(guide, min(self.eos))


@contextmanager
def walker_over(path: Path) -> Iterator[Walker]:
    """Of the model's own vocabulary."""
    files = open_model(path)
    tokenizer = files.tokenizer()
    assert tokenizer is not None
    walker = Walker(tokenizer, files.spec.vocab)
    files.close()
    yield walker
    walker.grammars.close()


def at_random(seed: int, ends: frozenset[int]) -> Choose:
    """Any of the allowed; an end, where there may be one, half of the time."""
    dice = random.Random(seed)

    def choose(allowed: Sequence[int]) -> int:
        ending = [i for i in allowed if i in ends]
        return dice.choice(ending) if ending and dice.random() < 0.5 else dice.choice(allowed)

    return choose
