"""Compares stored tensors."""

from __future__ import annotations

import numpy as np

from drut.model.weights.source import TensorSource

CHUNK = 16 << 20  # bytes compared at a time


def same_tensor(source: TensorSource, name: str, other: TensorSource, other_name: str) -> bool:
    """Whether two stored tensors have the same encoding, shape and bytes."""
    one, two = source.tensors[name], other.tensors[other_name]
    if (one.encoding, one.shape) != (two.encoding, two.shape):
        return False
    a, b = source.raw(name), other.raw(other_name)
    same = all(np.array_equal(a[i : i + CHUNK], b[i : i + CHUNK]) for i in range(0, len(a), CHUNK))
    source.release(name)
    other.release(other_name)
    return same
