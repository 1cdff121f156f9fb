"""The layout of key/value pages: 16 tokens, one contiguous blob over all layers of a group."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_TOKENS = 16
CHUNK_TOKENS = 256  # positions of one attention chunk, aligned to absolute position

ELEMENT_BYTES = {"bf16": 2, "fp32": 4, "int8": 1}
SCALE_BYTES = {"bf16": 0, "fp32": 0, "int8": 4}  # of a token's keys, and of its values, in one head
KV_DTYPES = tuple(ELEMENT_BYTES)


@dataclass(frozen=True)
class KvLayout:
    """Pages of one KV group: layers whose keys and values are kept for as long."""

    dtype: str
    layers: int
    kv_heads: int
    head_dim: int
    group: int = 0  # which of a model's groups it is: of the step descriptor's tables, and of the pools
    window: int = 0  # positions a row sees, its own the last, as long as they are kept; 0: all
    members: tuple[int, ...] = ()  # the group's layers, ascending; empty: the model's first ones

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
