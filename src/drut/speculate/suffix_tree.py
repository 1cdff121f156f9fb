"""A suffix tree: how often each run of tokens occurs in some texts, and what follows it.

The tree is compressed: an edge is a span of a text, and a node is where texts differ. Only suffixes up to a depth are
kept. One text at a time grows, token by token; older texts can be removed. A suffix of the growing text that has
occurred before is an `active` point in the tree: the point is a match of the text's last tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class SuffixNode:
    """An edge, the span `start` to `end` of `text`, and the node that it leads to. `count`: suffixes on the edge."""

    __slots__ = ("best", "children", "count", "end", "followed", "start", "text")

    def __init__(self, text: list[int], start: int, end: int, count: int) -> None:
        self.text, self.start, self.end, self.count = text, start, end, count
        self.children: dict[int, SuffixNode] = {}  # by the first token of their edges
        self.followed = 0  # sum of the children's counts
        self.best: SuffixNode | None = None  # the child with the largest count, the latest of equals

    @property
    def length(self) -> int:
        """The number of tokens on the edge. That of a leaf grows with its text, up to the tree's depth."""
        end = self.end
        return (end if end <= len(self.text) else len(self.text)) - self.start

    def enter(self, token: int) -> SuffixNode | None:
        """Counts one more suffix on the edge that begins with `token` and returns its node; None if there is none."""
        child = self.children.get(token)
        if child is not None:
            child.count += 1
            self.followed += 1
            if self.best is None or child.count >= self.best.count:
                self.best = child
        return child

    def add(self, token: int, child: SuffixNode) -> None:
        self.children[token] = child
        self.followed += child.count
        if self.best is None or child.count >= self.best.count:
            self.best = child


class TreePoint:
    """A place in the tree: `offset` tokens into the edge of `node`."""

    __slots__ = ("node", "offset")

    def __init__(self, node: SuffixNode, offset: int) -> None:
        self.node, self.offset = node, offset


class SuffixMatch(NamedTuple):
    """Drafts that follow a match of `length` tokens; `score`: the number of them that is expected to be accepted."""

    tokens: list[int]
    score: float
    length: int


NO_MATCH = SuffixMatch([], 0.0, 0)


class SuffixTree:
    """Counts the suffixes of texts up to `depth` tokens."""

    def __init__(self, depth: int) -> None:
        self.depth, self.nodes = depth, 0
        self._root = SuffixNode([], 0, 0, 0)
        self._text: list[int] = []
        self._active: list[TreePoint] = []  # of the shortest suffixes, the longest first

    def extend(self, tokens: Iterable[int]) -> None:
        """Appends `tokens` to the growing text."""
        for token in tokens:
            self._append(token)

    def end(self) -> list[int]:
        """Ends the growing text and returns it, for `remove`. Another text may follow."""
        text = self._text
        for point in self._active:
            if point.offset < point.node.length:
                self._split(point.node, point.offset)
        self._text, self._active = [], []
        return text

    def remove(self, text: list[int]) -> None:
        """Removes a text that has ended."""
        for first in range(len(text)):
            node, at, last = self._root, first, min(len(text), first + self.depth)
            while at < last:
                child = node.children[text[at]]
                child.count -= 1
                node.followed -= 1
                if child.count == 0:  # below are suffixes of this one only
                    del node.children[text[at]]
                    self.nodes -= sum(1 for _ in _below(child))
                if node.best is child and node is not self._root:  # after no token at all nothing is proposed
                    node.best = max(node.children.values(), key=lambda c: c.count, default=None)
                if child.count == 0:
                    break
                if child.text is text:  # the span must survive its text
                    child.text = text[child.start : child.start + child.length]
                    child.start, child.end = 0, len(child.text)
                node, at = child, at + child.length

    def count(self, tokens: Sequence[int]) -> int:
        """Returns how often `tokens` occur, at most `depth` of them."""
        point = self._find(tokens)
        if point is None:
            return 0
        shorter = [p for p in self._active if p.node is point.node and p.offset < point.offset]
        return point.node.count - len(shorter)

    def follow(self, most: int, factor: float = 1.0, offset: float = 0.0, least: float = 0.0) -> SuffixMatch:
        """Returns the drafts with the highest score after a match of the growing text's own last tokens."""
        return self._best(((p, len(self._active) - i) for i, p in enumerate(self._active)), most, factor, offset, least)

    def follow_context(self, context: Sequence[int], most: int, factor: float = 1.0, offset: float = 0.0,
                       least: float = 0.0) -> SuffixMatch:
        """Returns the drafts with the highest score after a match of the last tokens of `context`."""
        points: list[tuple[TreePoint, int]] = []
        for length in range(1, min(len(context), self.depth - 1) + 1):
            if (point := self._find(context[-length:])) is None:
                break  # nor does a longer one occur
            points.append((point, length))
        return self._best(reversed(points), most, factor, offset, least)

    def _best(self, points: Iterable[tuple[TreePoint, int]], most: int, factor: float, offset: float,
              least: float) -> SuffixMatch:
        """`points`: matches with their lengths, the longest first. A match of m tokens gives at most factor * m +
        offset drafts, each with a probability of at least `least`."""
        best = NO_MATCH
        for point, length in points:
            budget = min(most, int(factor * length + offset))
            if best.score >= budget:
                break  # a score is at most the number of drafts, and shorter matches have fewer
            tokens, score = self._walk(point, budget, least)
            if score > best.score:
                best = SuffixMatch(tokens, score, length)
        return best

    def _walk(self, point: TreePoint, most: int, least: float) -> tuple[list[int], float]:
        """Returns up to `most` likely tokens from a point on, and the sum of their probabilities."""
        node, offset, chance, score = point.node, point.offset, 1.0, 0.0
        tokens: list[int] = []
        while len(tokens) < most:
            free = min(node.length - offset, most - len(tokens))
            if free > 0:
                at = node.start + offset
                tokens += node.text[at : at + free]
                score += free * chance
                offset += free
                continue
            if node.best is None:
                break
            chance *= node.best.count / node.followed
            if chance < least:
                break
            node, offset = node.best, 0
        return tokens, score

    def _append(self, token: int) -> None:
        text, active = self._text, self._active
        text.append(token)
        active.append(TreePoint(self._root, 0))
        gone = 0  # leading points whose suffixes became leaves or reached the depth
        for i, point in enumerate(active):
            node, offset = point.node, point.offset
            if offset < node.length:
                if node.text[node.start + offset] == token:
                    point.offset = offset + 1
                    continue
                self._split(node, offset)
            elif (child := node.enter(token)) is not None:
                point.node, point.offset = child, 1
                continue
            first = len(text) - len(active) + i
            if node is not self._root:  # an ended leaf stops growing when something follows it
                node.end = node.start + node.length
            node.add(token, SuffixNode(text, len(text) - 1, first + self.depth, 1))
            self.nodes += 1
            gone = i + 1
        if gone < len(active) and len(active) - gone == self.depth:
            gone += 1
        del active[:gone]

    def _split(self, node: SuffixNode, offset: int) -> None:
        """Makes a node of the point `offset` tokens into the edge of `node`; the rest of the edge leads to a new one,
        which gets the children."""
        resting = 0
        rest = SuffixNode(node.text, node.start + offset, node.end, 0)
        for point in self._active:
            if point.node is node:
                if point.offset <= offset:
                    resting += 1
                else:
                    point.node, point.offset = rest, point.offset - offset
        rest.count = node.count - resting
        rest.children, rest.followed, rest.best = node.children, node.followed, node.best
        node.end, node.children, node.followed, node.best = node.start + offset, {}, 0, None
        node.add(rest.text[rest.start], rest)
        self.nodes += 1

    def _find(self, tokens: Sequence[int]) -> TreePoint | None:
        """Returns the point behind `tokens`; None if they do not occur."""
        node, offset, at = self._root, 0, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                return None
            node, offset = child, min(child.length, len(tokens) - at)
            if node.text[node.start : node.start + offset] != list(tokens[at : at + offset]):
                return None
            at += offset
        return TreePoint(node, offset)


def _below(node: SuffixNode) -> Iterator[SuffixNode]:
    """Yields a node and all nodes below it."""
    yield node
    for child in node.children.values():
        yield from _below(child)
