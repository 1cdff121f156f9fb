"""The text that perplexity is measured on, and the measure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TEXT = Path(__file__).parents[2] / "benchmarks" / "data" / "wikitext2_test_head.txt"
COUNT, LENGTH = 16, 512


def windows(encode: Callable[[str], list[int]]) -> list[list[int]]:
    """The text's first COUNT * LENGTH ids in consecutive windows; `encode` adds no special token."""
    ids = encode(TEXT.read_text(encoding="utf-8"))
    return [ids[start : start + LENGTH] for start in range(0, COUNT * LENGTH, LENGTH)]


def ids_digest(rows: Sequence[Sequence[int]]) -> str:
    """SHA-256 over the windows' ids as little-endian int32."""
    return hashlib.sha256(np.array(rows, "<i4").tobytes()).hexdigest()


def mean_nll(logits: NDArray[np.float32], ids: Sequence[int]) -> float:
    """Mean of -log p(ids[t] | ids[:t]) over t >= 1, in nats, from logits (len(ids), vocab), in double."""
    rows = logits[:-1].astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    chosen = np.take_along_axis(rows, np.array(ids[1:])[:, None], axis=1)[:, 0]
    return float(np.mean(np.log(np.exp(rows).sum(axis=1)) - chosen))
