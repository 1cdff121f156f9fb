"""Pages of a window group that the prefix tree keeps: any of them may go without the node it belongs to."""

from __future__ import annotations

from collections import OrderedDict

from drut.cache.tree import Node
from drut.kernels.descriptor import HOLE


class WindowPages:
    """What the tree's nodes hold of one window group, and which of it goes first.

    Pages that a window passed by are of use only to a prompt that parts from the others there: they go before those
    that were last in a sequence's window when it ended, or that a prompt was given. In each kind the least recently
    used go first.
    """

    def __init__(self, index: int, place: int) -> None:
        """`index`: which of all groups this is; `place`: which of those with a window."""
        self.index, self._place = index, place
        self._passed: OrderedDict[Node, None] = OrderedDict()
        self._wanted: OrderedDict[Node, None] = OrderedDict()

    @property
    def evictable(self) -> int:
        """Pages that no table maps."""
        return len(self._passed) + len(self._wanted)

    def page(self, node: Node) -> int:
        """HOLE where the node has none."""
        return node.held[self._place].page

    def uses(self, node: Node) -> int:
        """Tables that map the node's page."""
        return node.held[self._place].uses

    def put(self, node: Node, page: int) -> None:
        """Gives the node a page; it has none. The next call is `lock`."""
        node.held[self._place].page = page

    def lock(self, node: Node, *, wanted: bool = False) -> int:
        """One more table maps the node's page, which is returned; `wanted`: a prompt was given it."""
        held = node.held[self._place]
        if held.uses == 0:
            self._passed.pop(node, None)
            self._wanted.pop(node, None)
        held.uses += 1
        held.wanted |= wanted
        return held.page

    def unlock(self, node: Node, *, wanted: bool = False) -> None:
        """A table maps the node's page no more; `wanted`: its sequence ended with the page in its window."""
        held = node.held[self._place]
        held.uses -= 1
        held.wanted |= wanted
        if held.uses == 0:
            (self._wanted if held.wanted else self._passed)[node] = None

    def evict(self) -> int:
        """Takes the page that goes first from its node. There must be one (`evictable` > 0)."""
        node, _ = (self._passed or self._wanted).popitem(last=False)
        return self._clear(node)

    def drop(self, node: Node) -> int:
        """Takes the page, if there is one, of a node that leaves the tree; HOLE if not."""
        self._passed.pop(node, None)
        self._wanted.pop(node, None)
        return self._clear(node)

    def _clear(self, node: Node) -> int:
        held = node.held[self._place]
        page, held.page, held.wanted = held.page, HOLE, False
        return page
