"""The interface of a tokenizer to workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from drut.errors import RequestError


class BenchTokenizer(Protocol):
    """Converts plain text to ids and back: adds no BOS or EOS, and treats special tokens spelled in a text as text."""

    @property
    def name(self) -> str:
        """Returns the name of the tokenizer, for reports and errors."""
        ...

    @property
    def remote(self) -> bool:
        """Returns whether each call is a request over the network."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def count(self, text: str) -> int:
        """Returns the number of ids of `text`."""
        ...


def counting(tokenizer: BenchTokenizer) -> Callable[[str], int | None]:
    """Returns its `count`, which returns None once a server's tokenizer stops answering, so that no run is lost."""
    lost = False

    def count(text: str) -> int | None:
        nonlocal lost
        try:
            return None if lost else tokenizer.count(text)
        except RequestError:
            lost = True
            return None

    return count
