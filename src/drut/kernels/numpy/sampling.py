"""Sampling, the reference of csrc/sample: argmax of logit/T + Gumbel noise over the kept ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drut.kernels.descriptor import Edits
from drut.kernels.ops import F32

PHILOX_M = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
PHILOX_W = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(seed: int, counter: list[NDArray[np.uint64]]) -> list[NDArray[np.uint64]]:
    """Returns Philox4x32-10 with the 64-bit key `seed` for arrays of counters, as uint64 words."""
    c = list(counter)
    k = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a, b = PHILOX_M[0] * c[0], PHILOX_M[1] * c[2]
        c = [(b >> HALF) ^ c[1] ^ np.uint64(k[0]), b & LOW, (a >> HALF) ^ c[3] ^ np.uint64(k[1]), a & LOW]
        k = [(k[0] + PHILOX_W[0]) & 0xFFFFFFFF, (k[1] + PHILOX_W[1]) & 0xFFFFFFFF]
    return c


def gumbel(seed: int, position: int, choice: int, ids: NDArray[np.int64], purpose: int = 0) -> F32:
    """Returns the Gumbel noise of each id at one position."""
    token = ids.astype(np.uint64)
    fill = [np.full_like(token, np.uint64(value & 0xFFFFFFFF)) for value in (position, choice, purpose)]
    word = philox(seed, [fill[0], fill[1], token, fill[2]])[0]
    u = ((word >> np.uint64(9)).astype(np.float64) + 0.5) * 2.0**-23
    return (-np.log((-np.log(u)).astype(np.float32))).astype(np.float32)


def edited(logits: F32, edits: Edits, *, repetition: float, presence: float, frequency: float) -> F32:
    """Returns logits after the logits processors: bias and penalties, each operation rounded to float32."""
    x = logits[edits.ids] + edits.bias
    penalized = np.where(x > 0, x / np.float32(repetition), x * np.float32(repetition))
    x = np.where(edits.seen != 0, penalized, x)
    x = x - np.float32(frequency) * edits.counts.astype(np.float32)
    x = np.where(edits.counts > 0, x - np.float32(presence), x)
    z = logits.copy()
    z[edits.ids] = x
    return z


def allowed(z: F32, mask: NDArray[np.int32]) -> F32:
    """Returns logits with minus infinity for the ids whose bit in the grammar mask is 0."""
    bits = np.unpackbits(mask.view(np.uint8), count=len(z), bitorder="little")
    return np.where(bits, z, np.float32(-np.inf))


def by_value(z: F32) -> NDArray[np.int64]:
    """Returns all ids, the largest value first; of equal values the lowest id first."""
    return np.argsort(-z, kind="stable")


def kept_ids(z: F32, top_k: int, top_p: float, min_p: float) -> NDArray[np.int64]:
    """Returns the ids that are left after top-k, then top-p, then min-p; `z`: logits divided by the temperature."""
    order = by_value(z)
    weight = np.exp(z - z.max())
    if 0 < top_k < len(z):
        order = order[:top_k]
    if top_p < 1.0:
        total = weight[order].sum(dtype=np.float64)
        below = np.cumsum(weight[order], dtype=np.float64) < top_p * total
        order = order[: int(below.sum()) + 1]
    kept: NDArray[np.int64] = order[weight[order] >= min_p]
    return kept


def sample(logits: F32, *, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, position: int,
           choice: int) -> int:
    """Returns one id; of equal values the lowest. The highest logit must be finite."""
    if temperature < np.finfo(np.float32).tiny:  # zero, or a subnormal, which the kernels read as zero
        return int(logits.argmax())
    z = logits / np.float32(temperature)
    if not np.isfinite(z.max()):  # past the largest float all differences dwarf the noise
        return int(logits.argmax())
    ids = np.sort(kept_ids(z, top_k, top_p, min_p))
    return int(ids[(z[ids] + gumbel(seed, position, choice, ids)).argmax()])


def logprobs(logits: F32) -> F32:
    """Returns the log-probability of every id."""
    shifted = logits - logits.max()
    return np.asarray(shifted - np.float32(np.log(np.exp(shifted).sum(dtype=np.float64))), np.float32)


def rank(logits: F32, token: int) -> int:
    """Returns 1 + the number of ids with a larger logit, or with the same logit and a lower id."""
    x = logits[token]
    return 1 + int((logits > x).sum()) + int((logits[:token] == x).sum())
