"""The rows that `Coverage` reports for a drafter are in its pages, whatever the cache shares, replaces and evicts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.cache.cache import BlockTable, KvCache
from drut.cache.check import check_cache
from drut.cache.kinds import FullGroup
from drut.cache.pool import PagePool
from drut.kernels.kv import PAGE_TOKENS as P
from drut.kernels.pool import HostPool
from drut.speculate.coverage import Coverage
from drut.speculate.drafter import DraftInput


def make(pages: int) -> KvCache:
    return KvCache(*(PagePool(HostPool(np.zeros((pages, 64), np.uint8))) for _ in range(2)),
                   groups=[FullGroup(), FullGroup()])


@dataclass
class Sequence:
    """One that the target decodes, and a drafter follows now and then."""

    order: int
    table: BlockTable
    tokens: list[int]
    epoch: int = 0


@dataclass
class Drafting:
    """The cache, and what a drafter wrote to each slot of its pages."""

    dice: random.Random
    cache: KvCache = field(default_factory=lambda: make(40))
    running: list[Sequence] = field(default_factory=list)
    begun: int = 0

    def __post_init__(self) -> None:
        self.slots = np.full((self.cache.pools[1].total * P, 2), -1)
        self.coverage = Coverage(self.cache.pools[1], 1)

    def begin(self) -> None:
        self.begun += 1
        texts = [[i // (3 * P) if i < 5 * P else kind for i in range(self.dice.randrange(2, 8 * P))]
                 for kind in range(3)]
        one = Sequence(self.begun, self.cache.table(), self.dice.choice(texts))
        self.admit(one)
        self.running.append(one)

    def admit(self, one: Sequence) -> None:
        self.cache.attach(one.table, one.tokens)
        assert self.cache.reserve(one.table, len(one.tokens))

    def preempt(self, one: Sequence) -> None:
        self.cache.release(one.table)
        for page in self.cache.pools[1]._free:  # as others may
            self.slots[page * P : (page + 1) * P] = -1
        one.epoch += 1
        self.admit(one)

    def decode(self, one: Sequence) -> None:
        """The target computes all rows but the last; the tokens are few, so sequences have the same pages."""
        self.cache.commit(one.table, one.tokens, len(one.tokens) - 1)
        one.tokens += [0] * self.dice.randrange(1, 9)
        assert self.cache.reserve(one.table, len(one.tokens) + 8)

    def draft(self, one: Sequence) -> None:
        """The drafter fills some rows that it lacks, then those of drafts, which are right up to a point."""
        given_ = DraftInput(one.order, one.tokens, 8, table=one.table, epoch=one.epoch)
        rows = self.coverage.rows(given_)
        assert 0 <= rows < len(one.tokens)
        for position in range(rows):
            assert self.slots[self.slot(one, position)].tolist() == [one.tokens[position], position]
        count = self.dice.randrange(1, len(one.tokens) - rows + 1)
        drafts: list[int] = []
        if rows + count == len(one.tokens):
            self.cache.reserve(one.table, len(one.tokens) + 8)
            drafts = [0] * self.dice.randrange(5) + [9] * self.dice.randrange(3)
        for position, token in enumerate([*one.tokens[rows : rows + count], *drafts], rows):
            self.slots[self.slot(one, position)] = token, position
        self.coverage.store(given_, rows + count, drafts)

    def slot(self, one: Sequence, position: int) -> int:
        return int(one.table.maps[1][position // P]) * P + position % P

    def end(self, one: Sequence) -> None:
        self.running.remove(one)
        self.cache.release(one.table)
        self.coverage.forget(one.order)

    def step(self) -> None:
        if len(self.running) < 3:
            return self.begin()
        one = self.dice.choice(self.running)
        if len(one.tokens) > 10 * P:
            return self.end(one)
        act = self.dice.choices([self.draft, self.decode, self.preempt, self.end], [8, 6, 1, 1])[0]
        act(one)
        return None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_rows_that_are_there(seed: int) -> None:
    drafting = Drafting(random.Random(seed))
    for _ in range(150):
        drafting.step()
    check_cache(drafting.cache, [one.table for one in drafting.running])


def test_a_rejected_draft_has_no_row() -> None:
    cache = make(4)
    table, coverage = cache.table(), Coverage(cache.pools[1], 1)
    assert cache.reserve(table, 2 * P)
    tokens = [1, 2, 3]
    assert coverage.rows(DraftInput(1, tokens, 4, table=table)) == 0
    coverage.store(DraftInput(1, tokens, 4, table=table), 3, [4, 5, 6])
    assert coverage.rows(DraftInput(1, [*tokens, 4, 5, 7], 4, table=table)) == 5
    coverage.store(DraftInput(1, tokens, 4, table=table), 3, [4, 5, 6])
    assert coverage.rows(DraftInput(1, [*tokens, 4, 5, 6, 7], 4, table=table)) == 6
    coverage.store(DraftInput(1, tokens, 4, table=table), 3, [4, 5, 6])
    assert coverage.rows(DraftInput(1, [*tokens, 9, 5, 6, 7], 4, table=table)) == 3
    coverage.store(DraftInput(1, tokens, 4, table=table), 3, [4])
    assert coverage.rows(DraftInput(1, tokens, 4, table=table)) == 2, "of the last token there must be logits"
