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
    """Pages of one group of layers whose keys and values are kept for the whole context."""

    dtype: str
    layers: int
    kv_heads: int
    head_dim: int

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

    @property
    def token_bytes(self) -> int:
        return self.page_bytes // PAGE_TOKENS
