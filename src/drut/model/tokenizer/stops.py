"""Finds stop strings in a stream of text with an Aho-Corasick automaton: one step per character for any number of
strings."""

from __future__ import annotations

from collections.abc import Sequence

from drut.errors import RequestError

MAX_STOP_CHARS = 16384


class StopChecker:
    """Emits text up to the first stop string; the stop string itself is emitted only with `include`.

    The match that ends first wins; of matches that end together, the one that begins first. The order of the strings
    does not matter. The text held back is the longest suffix that is a prefix of a stop string.
    """

    def __init__(self, stops: Sequence[str] | StopStrings, *, include: bool = False) -> None:
        """`stops`: the strings, or their automaton, which several texts may share."""
        self._automaton = stops if isinstance(stops, StopStrings) else StopStrings(stops)
        self._node = 0
        self._held = ""
        self._include = include
        self.stopped = False
        self.matched: str | None = None  # the stop string that ended the text

    def push(self, text: str) -> tuple[str, bool]:
        """Returns the text that may be emitted now, and whether a stop string has ended it."""
        if self.stopped or not text:
            return "", self.stopped
        automaton = self._automaton
        if automaton.is_empty:
            return text, False
        node = self._node
        text = self._held + text
        for end in range(len(self._held), len(text)):
            node = automaton.step(node, text[end])
            if matched := automaton.matched[node]:
                self.stopped, self._held = True, ""
                self.matched = text[end + 1 - matched : end + 1]
                return text[: end + 1 if self._include else end + 1 - matched], True
        self._node = node
        released = len(text) - automaton.depth[node]
        self._held = text[released:]
        return text[:released], False

    def flush(self) -> str:
        """Returns the text that was held back and did not become a stop string."""
        held, self._held, self._node = self._held, "", 0
        return held


class StopStrings:
    """The automaton of a list of stop strings. It takes hundreds of bytes per character, so choices share one. It never
    changes.

    A node is a prefix of a stop string; the current node is the longest prefix that is a suffix of the text.
    `depth[node]` is its length, `matched[node]` the length of the longest stop string that ends there, or 0.
    Raises RequestError if a stop string is empty, or all together are longer than MAX_STOP_CHARS.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        _check(stops)
        self.is_empty = not stops
        self.depth = [0]
        self.matched = [0]
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        for stop in stops:
            node = 0
            for char in stop:
                if char not in self._next[node]:
                    self._next[node][char] = len(self.depth)
                    self.depth.append(self.depth[node] + 1)
                    self.matched.append(0)
                    self._next.append({})
                    self._fail.append(0)
                node = self._next[node][char]
            self.matched[node] = len(stop)
        queue = list(self._next[0].values())
        for node in queue:  # order: breadth first, so that a node's fallback, which is shorter, is done before it
            for char, child in self._next[node].items():
                fallback = self._fail[child] = self.step(self._fail[node], char)
                self.matched[child] = self.matched[child] or self.matched[fallback]
                queue.append(child)

    def step(self, node: int, char: str) -> int:
        """Returns the node after one more character."""
        while node and char not in self._next[node]:
            node = self._fail[node]
        return self._next[node].get(char, 0)


def _check(stops: Sequence[str]) -> None:
    if isinstance(stops, str):
        raise RequestError("stop must be a list of strings, not one string")
    for i, stop in enumerate(stops):
        if not isinstance(stop, str) or not stop:
            raise RequestError(f"stop[{i}] must be a string with at least one character")
    if sum(map(len, stops)) > MAX_STOP_CHARS:
        raise RequestError(f"stop: more than {MAX_STOP_CHARS} characters in all")
