"""Memory layouts of KV groups: pages of 16 tokens, or one slot per sequence. A page or slot is one block of bytes over
all layers of the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

PAGE_TOKENS = 16
CHUNK_TOKENS = 256  # positions of one attention chunk, aligned to absolute position

ELEMENT_BYTES = {"bf16": 2, "fp32": 4, "int8": 1}
SCALE_BYTES = {"bf16": 0, "fp32": 0, "int8": 4}  # for the keys of a token in one head, and the same for its values
KV_DTYPES = tuple(ELEMENT_BYTES)


class CacheLayout(Protocol):
    """The layout of the units of one KV group: a pool allocates units, a block table lists them. Compared by value."""

    @property
    def kind(self) -> str:
        """The name of the cache kind that owns the units, in the table that the engine is built with."""
        ...

    @property
    def by_sequence(self) -> bool:
        """True if a unit is the slot of a sequence, the only entry of its block table; False if it is a page of 16
        tokens.
        Groups with slots come last."""
        ...

    @property
    def group(self) -> int:
        """The index of the group, in the step descriptor's tables and in the pools."""
        ...

    @property
    def layers(self) -> int: ...

    @property
    def members(self) -> tuple[int, ...]:
        """The layers of the group, ascending; empty: the first layers of the model."""
        ...

    @property
    def window(self) -> int:
        """The number of positions that a row attends to, its own the last; 0: all."""
        ...

    @property
    def page_bytes(self) -> int:
        """The bytes of a unit."""
        ...

    @property
    def token_bytes(self) -> int:
        """The bytes that each token adds to a sequence; 0 for slots."""
        ...


@dataclass(frozen=True)
class KvLayout:
    """The layout of the pages of one KV group: layers that keep keys and values for the same number of positions."""

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
        """The bytes of keys and values of one page, layer and head."""
        return 2 * PAGE_TOKENS * (self.head_dim * ELEMENT_BYTES[self.dtype] + SCALE_BYTES[self.dtype])

    @property
    def layer_bytes(self) -> int:
        return self.kv_heads * self.head_bytes

    @property
    def page_bytes(self) -> int:
        return self.layers * self.layer_bytes

    def offset(self, layer: int) -> int:
        """Returns the offset of the model's `layer` in a page, in bytes."""
        return self.place(layer) * self.layer_bytes

    def place(self, layer: int) -> int:
        """Returns the index of the model's `layer` within the group."""
        return self.members.index(layer) if self.members else layer

    @property
    def token_bytes(self) -> int:
        return self.page_bytes // PAGE_TOKENS
