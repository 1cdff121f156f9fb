"""What the KV cache asks of one group's state. `KvCache` is a loop over such objects and knows none of them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from drut.cache.pool import PagePool
from drut.cache.tree import Held, Node

if TYPE_CHECKING:
    from drut.cache.cache import BlockTable


class Holdings(NamedTuple):
    """What a table held of one group: units of its own, and nodes whose units it mapped, in order."""

    own: Sequence[int]
    nodes: list[Node]


class CacheKind(ABC):
    """Owns the pool of one group. A unit is what the pool hands out: a page of 16 tokens, or a sequence's state.

    `index`: which of the cache's groups this is; of a block table it uses `maps[index]` and `first[index]`, of a tree
    node `held[index]`.
    """

    rewinds = True  # rows that were computed may be computed again, with other tokens, as drafts need it
    evicts_nodes = False  # a unit leaves the tree only together with its node, and those below it

    def __init__(self, pool: PagePool, index: int) -> None:
        self.pool, self.index = pool, index

    def held(self, node: Node) -> Held:
        return node.held[self.index]

    @property
    def available(self) -> int:
        """Units that are free or can be made so."""
        return self.pool.free + self.evictable

    @property
    @abstractmethod
    def evictable(self) -> int:
        """Cached units that no table maps."""

    @abstractmethod
    def missing(self, table: BlockTable, tokens: int) -> int:
        """Units the table lacks for `tokens` positions in all."""

    @abstractmethod
    def resume(self, path: Sequence[Node], count: int) -> int:
        """The longest prefix of `path`, at most `count` nodes, behind which a sequence can go on."""

    @abstractmethod
    def attach(self, table: BlockTable, path: Sequence[Node]) -> None:
        """Gives an empty table what a sequence needs to go on behind `path`, whose nodes are locked."""

    @abstractmethod
    def share(self, table: BlockTable, page: int, node: Node) -> None:
        """`node` has the tokens of the table's page number `page`, which is full: the tree may keep its unit."""

    @abstractmethod
    def slide(self, table: BlockTable, computed: int) -> None:
        """Frees what rows from position `computed` on do not read; shared units stay cached."""

    @abstractmethod
    def holdings(self, table: BlockTable) -> Holdings:
        """What `free` will be given once the table is empty."""

    @abstractmethod
    def free(self, holdings: Holdings) -> None:
        """A table that held this is empty: its own units are freed, those of nodes stay cached."""

    @abstractmethod
    def evict(self) -> None:
        """Frees the unit that goes first, whose node stays. There must be one. Not called if `evicts_nodes`."""

    @abstractmethod
    def drop(self, node: Node) -> bool:
        """Frees the unit of a node that leaves the tree; False if it has none."""

    @abstractmethod
    def check(self, tables: Sequence[BlockTable], nodes: Sequence[Node]) -> None:
        """Counts units, mappings and uses anew. KvCorruptionError if something is off."""
