"""Rounding and row functions of the NumPy oracle. Each row's result depends on that row alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from drut.kernels.ops import F32

GROUP = 32


def to_bf16(x: F32) -> NDArray[np.uint16]:
    """Returns the bits of the nearest bf16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), np.uint64(0x7FC0), rounded).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> F32:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_bf16(x: F32) -> F32:
    return from_bf16(to_bf16(x))


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """Returns x / rms(x) * weight over the last axis."""
    mean = (x * x).sum(axis=-1, dtype=np.float32, keepdims=True) / np.float32(x.shape[-1])
    return np.asarray(x * (np.float32(1) / np.sqrt(mean + np.float32(eps))) * weight, np.float32)


def layer_norm(x: F32, weight: F32, eps: float) -> F32:
    """Returns (x - mean) / deviation * weight over the last axis."""
    width = np.float32(x.shape[-1])
    apart = x - x.sum(axis=-1, dtype=np.float32, keepdims=True) / width
    variance = (apart * apart).sum(axis=-1, dtype=np.float32, keepdims=True) / width
    return np.asarray(apart * (np.float32(1) / np.sqrt(variance + np.float32(eps))) * weight, np.float32)


def capped(x: F32, cap: float) -> F32:
    """Returns cap * tanh(x / cap), or x if cap is 0."""
    return np.asarray(np.float32(cap) * np.tanh(x / np.float32(cap)), np.float32) if cap else x


def silu(x: F32) -> F32:
    with np.errstate(over="ignore"):
        return np.asarray(x / (np.float32(1) + np.exp(-x)), np.float32)


def gelu_tanh(x: F32) -> F32:
    y = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.asarray(np.float32(0.5) * x * (np.float32(1) + np.tanh(y)), np.float32)


def gelu_erf(x: F32) -> F32:
    erf = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64) * math.sqrt(0.5))
    return np.asarray(0.5 * x * (1 + erf), np.float32)


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh, "gelu_erf": gelu_erf}


def rotate(x: F32, table: F32) -> F32:
    """Returns heads (rows, heads, head_dim) rotated by the (2*half) cosines and sines of their row. Elements after
    2*half
    are not rotated."""
    half = table.shape[-1] // 2
    cosine, sine = table[:, None, :half], table[:, None, half:]
    a, b = x[..., :half], x[..., half : 2 * half]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine, x[..., 2 * half :]], axis=-1)


def quantize_row(x: F32) -> tuple[F32, F32]:
    """Returns the last axis as int8 with one scale: codes (as float32, exact) and scales without that axis."""
    top = np.abs(x).max(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(top > 0, np.float32(127) / top, np.float32(0))
        codes = np.clip(np.rint(x * inverse[..., None]), -127, 127).astype(np.float32)
    return np.where(np.isnan(codes), np.float32(-127), codes), np.asarray(top * np.float32(1 / 127), np.float32)


def quantize(x: F32, group: int = GROUP, *, scaled: int = GROUP) -> tuple[F32, F32, F32]:
    """Returns rows as int8 with a scale for every `scaled` elements, 32 or 64: codes (as float32, exact), scales and
    scaled sums.

    They come in parts of `group` elements (32, or 16 for weights with scales so fine): (rows, parts, group) and
    (rows, parts) twice.
    """
    rows, k = x.shape
    whole = np.pad(x, [(0, 0), (0, -k % scaled)])
    codes, scale = quantize_row(whole.reshape(rows, -1, scaled))
    scale = np.repeat(scale, scaled // group, axis=-1)[:, : k // group]
    parts = codes.reshape(rows, -1, group)[:, : k // group]
    return parts, scale, parts.sum(axis=-1) * scale
