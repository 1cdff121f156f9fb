"""Layouts of what KV groups keep: pages of 16 tokens, or a slot a sequence; each is one blob over a group's layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

PAGE_TOKENS = 16
CHUNK_TOKENS = 256  # positions of one attention chunk, aligned to absolute position

ELEMENT_BYTES = {"bf16": 2, "fp32": 4, "int8": 1}
SCALE_BYTES = {"bf16": 0, "fp32": 0, "int8": 4}  # of a token's keys, and of its values, in one head
KV_DTYPES = tuple(ELEMENT_BYTES)


class Layout(Protocol):
    """Units of one KV group: what a pool gives room for and a block table maps. Compared and hashed by value."""

    @property
    def kind(self) -> str:
        """The cache kind that owns them, by its name in the table that the engine is built with."""
        ...

    @property
    def by_sequence(self) -> bool:
        """A unit is a sequence's slot, and its block table has that one entry; otherwise a page of 16 tokens. Groups of
        this kind come last."""
        ...

    @property
    def group(self) -> int:
        """Which of a model's groups it is: of the step descriptor's tables, and of the pools."""
        ...

    @property
    def layers(self) -> int: ...

    @property
    def members(self) -> tuple[int, ...]:
        """The group's layers, ascending; empty: the model's first ones."""
        ...

    @property
    def window(self) -> int:
        """Positions a row sees, its own the last; 0: all."""
        ...

    @property
    def page_bytes(self) -> int:
        """Of a unit."""
        ...

    @property
    def token_bytes(self) -> int:
        """What a sequence takes more of with each token; 0 of a slot."""
        ...


@dataclass(frozen=True)
class KvLayout:
    """Pages of one KV group: layers whose keys and values are kept for as long."""

    by_sequence: ClassVar[bool] = False
    dtype: str
    layers: int
    kv_heads: int
    head_dim: int
    group: int = 0
    window: int = 0
    members: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        return "window" if self.window else "full"

    @property
    def head_bytes(self) -> int:
        """Keys and values of one page, layer and head."""
        return 2 * PAGE_TOKENS * (self.head_dim * ELEMENT_BYTES[self.dtype] + SCALE_BYTES[self.dtype])

    @property
    def layer_bytes(self) -> int:
        return self.kv_heads * self.head_bytes

    @property
    def page_bytes(self) -> int:
        return self.layers * self.layer_bytes

    def offset(self, layer: int) -> int:
        """Bytes before `layer` of the model in a page."""
        return self.place(layer) * self.layer_bytes

    def place(self, layer: int) -> int:
        """Which of the group's layers `layer` of the model is."""
        return self.members.index(layer) if self.members else layer

    @property
    def token_bytes(self) -> int:
        return self.page_bytes // PAGE_TOKENS
