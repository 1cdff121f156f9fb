"""Paged attention of the NumPy oracle: chunks of 256 positions aligned to absolute position, merged in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drut.kernels.kv import CHUNK_TOKENS, PAGE_TOKENS, KvLayout
from drut.kernels.numpy.numbers import from_bf16, round_bf16, to_bf16
from drut.kernels.ops import F32


class Pages:
    """The pool seen as (pages, layers, kv_heads, keys|values, 16 tokens, head_dim) in its stored format."""

    def __init__(self, pool: NDArray[np.uint8], kv: KvLayout) -> None:
        dtype = np.uint16 if kv.dtype == "bf16" else np.float32
        self.kv = kv
        self._view = pool.view(dtype).reshape(len(pool), kv.layers, kv.kv_heads, 2, PAGE_TOKENS, kv.head_dim)

    def write(self, layer: int, slots: NDArray[np.int32], keys: F32, values: F32) -> None:
        """Keys and values (rows, kv_heads, head_dim) into their slots."""
        page, token = slots // PAGE_TOKENS, slots % PAGE_TOKENS
        for part, x in enumerate((keys, values)):
            self._view[page, layer, :, part, token] = to_bf16(x) if self.kv.dtype == "bf16" else x

    def read(self, layer: int, blocks: NDArray[np.int32], start: int, end: int) -> tuple[F32, F32]:
        """Keys and values of positions start..end, (kv_heads, CHUNK_TOKENS, head_dim) each, zero past the end."""
        pages = blocks[start // PAGE_TOKENS : -(-end // PAGE_TOKENS)]
        stored = self._view[pages, layer].transpose(1, 2, 0, 3, 4)  # kv_heads, 2, pages, tokens, head_dim
        kv = self.kv
        flat = np.ascontiguousarray(stored).reshape(kv.kv_heads, 2, -1, kv.head_dim)[:, :, : end - start]
        out = np.zeros((kv.kv_heads, 2, CHUNK_TOKENS, kv.head_dim), np.float32)
        out[:, :, : end - start] = from_bf16(flat) if kv.dtype == "bf16" else flat
        return out[:, 0], out[:, 1]


def attend(pages: Pages, layer: int, q: F32, length: int, blocks: NDArray[np.int32], scale: float) -> F32:
    """One row: q (kv_heads, group, head_dim), rounded as the KV format is, over positions below `length`."""
    rounded = round_bf16 if pages.kv.dtype == "bf16" else np.asarray
    top = total = acc = None
    for start in range(0, length, CHUNK_TOKENS):
        end = min(length, start + CHUNK_TOKENS)
        keys, values = pages.read(layer, blocks, start, end)
        scores = np.matmul(q, keys.transpose(0, 2, 1)) * np.float32(scale)  # (kv_heads, group, CHUNK_TOKENS)
        scores[:, :, end - start :] = -np.inf
        chunk_top = scores.max(axis=-1, keepdims=True)
        weights = rounded(np.exp(scores - chunk_top))
        chunk_total = weights.sum(axis=-1, keepdims=True)
        chunk_acc = np.matmul(weights, values)
        if top is None or total is None or acc is None:
            top, total, acc = chunk_top, chunk_total, chunk_acc
            continue
        new_top = np.maximum(top, chunk_top)
        old, new = np.exp(top - new_top), np.exp(chunk_top - new_top)
        top, total, acc = new_top, total * old + chunk_total * new, acc * old + chunk_acc * new
    assert acc is not None, "a row sees itself"
    assert total is not None
    return np.asarray(acc * (np.float32(1) / total), np.float32)
