"""Paged attention of the NumPy oracle: chunks of 256 positions, aligned to absolute position, merged in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.kernels.kv import CHUNK_TOKENS, PAGE_TOKENS, KvLayout
from drut.kernels.numpy.numbers import capped, from_bf16, quantize_row, round_bf16, to_bf16
from drut.kernels.ops import F32, Attention

WEIGHT_MAX = np.float32(16383)  # 14 bits


class NumpyPages:
    """A view of a pool as (pages, layers, kv_heads, keys|values, 16 tokens, head_dim) in its stored format.

    int8 has a scale for the keys and for the values of each token, (pages, layers, kv_heads, keys|values, 16 tokens).
    """

    def __init__(self, pool: NDArray[np.uint8], kv: KvLayout) -> None:
        self.kv = kv
        code = {"bf16": np.uint16, "fp32": np.float32, "int8": np.int8}[kv.dtype]
        fields: list[tuple[str, type, tuple[int, ...]]] = [("codes", code, (2, PAGE_TOKENS, kv.head_dim))]
        if kv.dtype == "int8":
            fields.append(("scales", np.float32, (2, PAGE_TOKENS)))
        heads = pool.view(np.dtype(fields)).reshape(len(pool), kv.layers, kv.kv_heads)
        self._codes, self._scales = heads["codes"], heads["scales"] if kv.dtype == "int8" else None

    def write(self, layer: int, slots: NDArray[np.int32], keys: F32, values: F32) -> None:
        """Stores keys and values (rows, kv_heads, head_dim) in their slots."""
        page, token = slots // PAGE_TOKENS, slots % PAGE_TOKENS
        for part, x in enumerate((keys, values)):
            if self._scales is not None:
                x, self._scales[page, layer, :, part, token] = quantize_row(x)
            self._codes[page, layer, :, part, token] = to_bf16(x) if self.kv.dtype == "bf16" else x

    def read(self, layer: int, blocks: NDArray[np.int32], seen: Seen) -> tuple[F32, F32]:
        """Returns keys and values of a chunk, (kv_heads, CHUNK_TOKENS, head_dim) each; zero outside of `seen`; int8 as
        codes."""
        out = _else_zero(self._codes[blocks[seen.pages], layer], seen)
        floats = from_bf16(out) if self.kv.dtype == "bf16" else out.astype(np.float32)
        return floats[:, 0], floats[:, 1]

    def scales(self, layer: int, blocks: NDArray[np.int32], seen: Seen) -> tuple[F32, F32]:
        """Returns the scales of keys and values, (kv_heads, 1, CHUNK_TOKENS) each."""
        assert self._scales is not None
        out = _else_zero(self._scales[blocks[seen.pages], layer], seen)
        return out[:, :1], out[:, 1:]


class Seen(NamedTuple):
    """The positions begin..end that a row attends to in the chunk at `start`."""

    start: int
    begin: int
    end: int

    @property
    def pages(self) -> slice:
        return slice(self.begin // PAGE_TOKENS, -(-self.end // PAGE_TOKENS))

    @property
    def tokens(self) -> slice:
        return slice(self.begin - self.start, self.end - self.start)

    def hide(self, scores: F32) -> F32:
        """Returns scores (..., CHUNK_TOKENS) with minus infinity at all other positions."""
        out = np.full_like(scores, -np.inf)
        out[..., self.tokens] = scores[..., self.tokens]
        return out


def _else_zero(stored: NDArray[Any], seen: Seen) -> NDArray[Any]:
    """Returns (pages, kv_heads, 2, 16, ...) as (kv_heads, 2, CHUNK_TOKENS, ...), zero outside of `seen`."""
    pages, heads = stored.shape[:2]
    flat = np.moveaxis(stored, 0, 2).reshape(heads, 2, pages * PAGE_TOKENS, *stored.shape[4:])
    skip, count = seen.begin % PAGE_TOKENS, seen.end - seen.begin
    out = np.zeros((heads, 2, CHUNK_TOKENS, *stored.shape[4:]), stored.dtype)
    out[:, :, seen.tokens] = flat[:, :, skip : skip + count]
    return out


def attend(pages: NumpyPages, op: Attention, q: F32, length: int, blocks: NDArray[np.int32]) -> F32:
    """Returns the attention of one row: q (kv_heads, group, head_dim), rounded like the KV format, over the positions
    below `length`, or the last `op.window` of them."""
    chunk_of = _int8_chunk if pages.kv.dtype == "int8" else _float_chunk
    begin = max(0, length - op.window) if op.window else 0
    top = total = acc = None
    for start in range(begin // CHUNK_TOKENS * CHUNK_TOKENS, length, CHUNK_TOKENS):
        seen = Seen(start, max(begin, start), min(length, start + CHUNK_TOKENS))
        chunk_top, chunk_total, chunk_acc = chunk_of(pages, op, q, blocks, seen)
        if top is None or total is None or acc is None:
            top, total, acc = chunk_top, chunk_total, chunk_acc
            continue
        new_top = np.maximum(top, chunk_top)
        old, new = np.exp(top - new_top), np.exp(chunk_top - new_top)
        top, total, acc = new_top, total * old + chunk_total * new, acc * old + chunk_acc * new
    assert acc is not None, "a row attends to itself"
    assert total is not None
    assert top is not None
    return np.asarray(acc * _share(op, top, total), np.float32)


def _share(op: Attention, top: F32, total: F32) -> F32:
    """Returns the factor of the accumulator: 1 / sum. The sum includes the sinks of the heads, if there are any."""
    if op.sinks is None:
        return np.float32(1) / total
    sink = op.sinks.data.reshape(top.shape)  # type: ignore[attr-defined]
    most = np.maximum(top, sink)
    own = np.exp(top - most)
    return np.asarray(own / (total * own + np.exp(sink - most)), np.float32)


Chunk = tuple[F32, F32, F32]  # maximum, sum and accumulator


def _float_chunk(pages: NumpyPages, op: Attention, q: F32, blocks: NDArray[np.int32], seen: Seen) -> Chunk:
    keys, values = pages.read(op.kv.place(op.layer), blocks, seen)
    scores = np.matmul(q, keys.transpose(0, 2, 1)) * np.float32(op.scale)  # (kv_heads, group, CHUNK_TOKENS)
    scores = seen.hide(capped(scores, op.cap))
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - top)
    if pages.kv.dtype == "bf16":
        weights = round_bf16(weights)
    return top, weights.sum(axis=-1, keepdims=True), np.matmul(weights, values)


def _int8_chunk(pages: NumpyPages, op: Attention, q: F32, blocks: NDArray[np.int32], seen: Seen) -> Chunk:
    """Computes a chunk with exact integer sums: a dot of 256 codes is below 2^24, a sum of 256 weights is in
    float64."""
    keys, values = pages.read(op.kv.place(op.layer), blocks, seen)
    key_scales, value_scales = pages.scales(op.kv.place(op.layer), blocks, seen)
    codes, q_scale = quantize_row(q)
    scores = np.matmul(codes, keys.transpose(0, 2, 1)) * (q_scale * np.float32(op.scale))[..., None] * key_scales
    scores = seen.hide(capped(scores, op.cap))
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - top)
    scaled = weights * value_scales
    most = scaled.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(most > 0, WEIGHT_MAX / most, np.float32(0))
    exact = np.matmul(np.rint(scaled * inverse).astype(np.float64), values.astype(np.float64))
    acc = np.asarray(exact, np.float32) * (most * (np.float32(1) / WEIGHT_MAX))
    return top, weights.sum(axis=-1, keepdims=True), acc
