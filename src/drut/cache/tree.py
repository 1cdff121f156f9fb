"""The prefix tree (a radix tree): pages by the tokens that lead to them. A node is a page of 16 tokens, which are its
edge.

Tokens are compared, not only hashed. The sha256 chain (a node's digest covers its whole path) names pages outside of
the tree: ghosts of evicted pages.
"""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from drut.kernels.descriptor import HOLE
from drut.kernels.kv import PAGE_TOKENS


class Held:
    """A node's unit of one group, or HOLE, and the number of block tables that map it."""

    __slots__ = ("page", "uses", "wanted")

    def __init__(self) -> None:
        self.page, self.uses, self.wanted = HOLE, 0, False


class PrefixNode:
    """Sixteen tokens of a prefix, with each group's unit. `locks` counts the block tables that use this node or one
    below it."""

    __slots__ = ("children", "digest", "held", "key", "last_used", "locks", "offered", "parent")

    def __init__(self, parent: PrefixNode | None, key: bytes, groups: int = 0) -> None:
        self.parent, self.key = parent, key
        self.held = tuple(Held() for _ in range(groups))
        self.children: dict[bytes, PrefixNode] = {}
        self.locks = 0
        self.last_used = 0
        self.offered = False
        self.digest: bytes = hashlib.sha256((parent.digest if parent else b"") + key).digest()

    def path(self) -> list[PrefixNode]:
        """Returns the nodes from the first page of the prefix to this one."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


    def last(self, count: int) -> list[PrefixNode]:
        """Returns the last `count` nodes of the path, from this one up."""
        nodes: list[PrefixNode] = []
        node: PrefixNode | None = self
        while node is not None and len(nodes) < count:
            nodes.append(node)
            node = node.parent
        return nodes


def page_key(tokens: Sequence[int], index: int) -> bytes:
    """Returns the edge of page `index` of a sequence: its tokens as bytes."""
    return array("i", tokens[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS]).tobytes()


class PrefixTree:
    """A tree that evicts unlocked leaves, the least recently used first. `evictable`: nodes that no table uses."""

    def __init__(self, ghosts: int, groups: int = 1) -> None:
        """`ghosts`: maximum of digests of evicted nodes; `groups`: the number of groups that have units in nodes."""
        self._groups = groups
        self.size = self.inserts = 0
        self._roots: dict[str, PrefixNode] = {}
        self._clock = 0
        self._leaves: list[tuple[int, int, PrefixNode]] = []  # heap; a node's entry may be out of date
        self._serial = 0
        self._ghosts: OrderedDict[bytes, None] = OrderedDict()
        self._ghost_room = ghosts
        self.evictable = 0

    def root(self, salt: str) -> PrefixNode:
        """Returns the root of sequences with `salt`; different salts share nothing."""
        if salt not in self._roots:
            self._roots[salt] = PrefixNode(None, salt.encode())
        return self._roots[salt]

    def walk(self, salt: str, tokens: Sequence[int], limit: int) -> Iterator[PrefixNode]:
        """Yields the cached pages of `tokens`, from the first on, at most `limit`."""
        node: PrefixNode | None = self._roots.get(salt)
        for i in range(limit):
            node = node.children.get(page_key(tokens, i)) if node else None
            if node is None:
                return
            yield node

    def was_evicted(self, node: PrefixNode, key: bytes) -> bool:
        """Whether the page `key` below `node` was cached before and evicted."""
        return hashlib.sha256(node.digest + key).digest() in self._ghosts

    def insert(self, parent: PrefixNode, key: bytes) -> PrefixNode:
        """Returns a new node below `parent`, not locked yet."""
        node = PrefixNode(parent, key, self._groups)
        self.size += 1
        self.inserts += 1
        parent.children[key] = node
        self._ghosts.pop(node.digest, None)
        self.evictable += 1
        self._touch(node)
        self._push_leaf(node)
        return node

    def lock(self, node: PrefixNode) -> None:
        """Adds the lock of a table on `node`. The same table must hold locks on all ancestors already."""
        if node.locks == 0 and node.parent is not None:
            self.evictable -= 1
        node.locks += 1
        self._touch(node)

    def unlock_path(self, node: PrefixNode) -> None:
        """Removes a table's locks on `node` and all its ancestors."""
        self._clock += 1
        current: PrefixNode | None = node
        while current is not None and current.parent is not None:
            current.locks -= 1
            if current.locks == 0:
                self.evictable += 1
                current.last_used = self._clock
                self._push_leaf(current)
            current = current.parent

    def evict(self) -> PrefixNode:
        """Removes the least recently used unlocked leaf and returns it. There must be one (`evictable` > 0)."""
        while True:
            used, _, node = heapq.heappop(self._leaves)
            node.offered = False
            parent = node.parent
            if parent is None or used != node.last_used or node.locks or node.children:
                self._push_leaf(node)
                continue
            del parent.children[node.key]
            self.evictable -= 1
            self.size -= 1
            self._remember(node.digest)
            if parent.parent is None and not parent.children:
                self._roots.pop(parent.key.decode(), None)
            else:
                self._push_leaf(parent)
            return node

    def _touch(self, node: PrefixNode) -> None:
        self._clock += 1
        node.last_used = self._clock

    def _push_leaf(self, node: PrefixNode) -> None:
        if node.parent is not None and not (node.offered or node.locks or node.children):
            node.offered = True
            self._serial += 1
            heapq.heappush(self._leaves, (node.last_used, self._serial, node))

    def _remember(self, digest: bytes) -> None:
        self._ghosts[digest] = None
        while len(self._ghosts) > self._ghost_room:
            self._ghosts.popitem(last=False)

    def nodes(self) -> Iterator[PrefixNode]:
        """Yields all nodes, parents first."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())
