"""A drafter that knows the answers, and is wrong, late or malformed where its script has it so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from drut.speculate import Drafter, DraftInput, VerifiedDrafts

Script = Callable[[random.Random, list[int], int], Any]  # what becomes of right drafts, in a vocabulary


def right(dice: random.Random, drafts: list[int], vocab: int) -> list[int]:
    return drafts


def wrong(dice: random.Random, drafts: list[int], vocab: int) -> list[int]:
    return [(d + 1 + dice.randrange(vocab - 1)) % vocab for d in drafts]


def right_so_far(dice: random.Random, drafts: list[int], vocab: int) -> list[int]:
    """The first ones are right, the others are not."""
    count = dice.randrange(len(drafts) + 1)
    return drafts[:count] + wrong(dice, drafts[count:], vocab)


def now_and_then(dice: random.Random, drafts: list[int], vocab: int) -> list[int]:
    return drafts[: dice.randrange(len(drafts) + 1)] if dice.random() < 0.7 else []


def outside(dice: random.Random, drafts: list[int], vocab: int) -> list[Any]:
    """Ids that no model has, and things that are no ids."""
    at = dice.randrange(len(drafts) + 1)
    return [*drafts[:at], dice.choice([-1, vocab, 1 << 40, None, "x", 2.0]), *drafts[at:]]


def too_long(dice: random.Random, drafts: list[int], vocab: int) -> list[int]:
    return drafts + [dice.randrange(vocab) for _ in range(500)]


SCRIPTS: dict[str, Script] = {script.__name__: script for script in (
    right, wrong, right_so_far, now_and_then, outside, too_long)}


class Scripted(Drafter):
    """Finds the sequence that begins with what is given, and proposes how it continues, as its script changes it."""

    def __init__(self, sequences: Iterable[Sequence[int]], vocab: int, script: Script, *, drafts: int = 6,
                 seed: int = 0) -> None:
        self.sequences, self._vocab, self._script = [list(s) for s in sequences], vocab, script
        self._drafts, self._dice = drafts, random.Random(seed)
        self.drafted = self.accepted = 0

    def propose(self, inputs: Sequence[DraftInput]) -> list[Any]:
        return [self._propose(list(given.tokens)) for given in inputs]

    def _propose(self, tokens: list[int]) -> Any:
        fits = [s for s in self.sequences if s[: len(tokens)] == tokens and len(s) > len(tokens)]
        drafts = self._dice.choice(fits)[len(tokens) :][: self._drafts] if fits else []
        return self._script(self._dice, drafts, self._vocab)

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        for one in verified:
            assert len(one.tokens) == one.accepted + 1
            self.drafted += one.drafted
            self.accepted += one.accepted

    def method(self, sequence: int) -> str:
        return "scripted"

    def forget(self, sequence: int) -> None:
        pass
