"""Sampling, the readable twin of csrc/sampling.h: argmax over the kept ids of logit/T + Gumbel noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drut.kernels.ops import F32

PHILOX_M = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
PHILOX_W = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(seed: int, counter: list[NDArray[np.uint64]]) -> list[NDArray[np.uint64]]:
    """Philox4x32-10 of the 64-bit key `seed`, for arrays of counters; words kept in uint64."""
    c = list(counter)
    k = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a, b = PHILOX_M[0] * c[0], PHILOX_M[1] * c[2]
        c = [(b >> HALF) ^ c[1] ^ np.uint64(k[0]), b & LOW, (a >> HALF) ^ c[3] ^ np.uint64(k[1]), a & LOW]
        k = [(k[0] + PHILOX_W[0]) & 0xFFFFFFFF, (k[1] + PHILOX_W[1]) & 0xFFFFFFFF]
    return c


def gumbel(seed: int, position: int, choice: int, ids: NDArray[np.int64], purpose: int = 0) -> F32:
    """Gumbel noise of each id at one place."""
    token = ids.astype(np.uint64)
    fill = [np.full_like(token, np.uint64(value & 0xFFFFFFFF)) for value in (position, choice, purpose)]
    word = philox(seed, [fill[0], fill[1], token, fill[2]])[0]
    u = ((word >> np.uint64(9)).astype(np.float64) + 0.5) * 2.0**-23
    return (-np.log((-np.log(u)).astype(np.float32))).astype(np.float32)


def kept_ids(z: F32, top_k: int, top_p: float, min_p: float) -> NDArray[np.int64]:
    """The ids that survive top-k, then top-p, then min-p, of logits over temperature `z`."""
    order = np.lexsort((np.arange(len(z)), -z.astype(np.float64)))  # by value descending, then id
    weight = np.exp(z - z.max())
    if 0 < top_k < len(z):
        order = order[:top_k]
    if top_p < 1.0:
        total = weight[order].sum(dtype=np.float64)
        below = np.cumsum(weight[order], dtype=np.float64) < top_p * total
        order = order[: int(below.sum()) + 1]
    return order[weight[order] >= min_p]


def sample(logits: F32, *, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, position: int,
           choice: int) -> int:
    """One id; the lowest of equals. The logits must be finite."""
    if temperature < np.finfo(np.float32).tiny:  # zero, or a subnormal, which kernels take as zero
        return int(logits.argmax())
    z = logits / np.float32(temperature)
    if not np.isfinite(z.max()):  # past the largest float all differences dwarf the noise
        return int(logits.argmax())
    ids = np.sort(kept_ids(z, top_k, top_p, min_p))
    return int(ids[(z[ids] + gumbel(seed, position, choice, ids)).argmax()])
