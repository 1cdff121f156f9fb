"""What workloads ask of a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


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
