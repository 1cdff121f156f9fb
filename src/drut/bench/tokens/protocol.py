"""What workloads ask of a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from drut.errors import RequestError


class Tokenizer(Protocol):
    """Plain text to ids and back: no BOS or EOS is added, and special tokens spelled in a text are text."""

    @property
    def name(self) -> str:
        """Which tokenizer it is, for reports and errors."""
        ...

    @property
    def remote(self) -> bool:
        """Whether each call is a request over the network."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def count(self, text: str) -> int:
        """The number of ids of `text`."""
        ...


def counting(tokenizer: Tokenizer) -> Callable[[str], int | None]:
    """Its `count`; None from when a server's stops answering on, so that no run is lost to it."""
    lost = False

    def count(text: str) -> int | None:
        nonlocal lost
        try:
            return None if lost else tokenizer.count(text)
        except RequestError:
            lost = True
            return None

    return count
