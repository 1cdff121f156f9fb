"""The interface of one KV group's state. `KvCache` is a loop over such objects and knows none of them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from drut.cache.pool import PagePool
from drut.cache.tree import Held, PrefixNode

if TYPE_CHECKING:
    from drut.cache.cache import BlockTable


class Holdings(NamedTuple):
    """A table's units of one group: its own ones, and the nodes whose units it mapped, in order."""

    own: Sequence[int]
    nodes: list[PrefixNode]


class CacheKind(ABC):
    """The owner of one group's pool. A unit is what the pool allocates: a page of 16 tokens, or a sequence's state.

    `index`: the group's number in the cache; the kind uses `maps[index]` and `first[index]` of a block table, and
    `held[index]` of a tree node.
    """

    rewinds = True  # whether computed rows may be computed again with other tokens, which drafts require
    evicts_nodes = False  # whether a unit is evicted only together with its node and the nodes below it

    def __init__(self, pool: PagePool, index: int) -> None:
        self.pool, self.index = pool, index

    def held(self, node: PrefixNode) -> Held:
        return node.held[self.index]

    @property
    def available(self) -> int:
        """The number of units that are free or can be evicted."""
        return self.pool.free + self.evictable

    @property
    @abstractmethod
    def evictable(self) -> int:
        """The number of cached units that no table maps."""

    @abstractmethod
    def missing(self, table: BlockTable, tokens: int) -> int:
        """Returns the number of units that the table lacks for `tokens` positions in total."""

    @abstractmethod
    def resume(self, path: Sequence[PrefixNode], count: int) -> int:
        """Returns the length of the longest prefix of `path`, at most `count` nodes, behind which a sequence can
        resume."""

    @abstractmethod
    def attach(self, table: BlockTable, path: Sequence[PrefixNode]) -> None:
        """Maps in an empty table what a sequence needs to resume behind `path`, whose nodes are locked."""

    @abstractmethod
    def share(self, table: BlockTable, page: int, node: PrefixNode) -> None:
        """Lets the tree keep the unit of the table's page number `page`, which is full and has the tokens of `node`."""

    @abstractmethod
    def slide(self, table: BlockTable, computed: int) -> None:
        """Frees units that rows from position `computed` on do not read; shared units stay cached."""

    @abstractmethod
    def holdings(self, table: BlockTable) -> Holdings:
        """Returns the argument of `free`, which is called once the table is empty."""

    @abstractmethod
    def free(self, holdings: Holdings) -> None:
        """Frees the own units of a table that is empty now; units of nodes stay cached."""

    @abstractmethod
    def evict(self) -> None:
        """Frees the next unit in order of eviction; its node stays. There must be one. Not called if `evicts_nodes`."""

    @abstractmethod
    def drop(self, node: PrefixNode) -> bool:
        """Frees the unit of a node that leaves the tree; returns False if it has none."""

    @abstractmethod
    def check(self, tables: Sequence[BlockTable], nodes: Sequence[PrefixNode]) -> None:
        """Recounts units, mappings and uses. Raises KvCorruptionError if a count is wrong."""
