"""Rotary frequencies, and the ways models stretch them over longer contexts.

The powers are taken in decimal arithmetic and rounded once to float64, so that no platform's `pow` shows in the bits.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence

from drut.errors import UnsupportedError
from drut.model.weights.mapping import quote

TWO_PI = 6.283185307179586


def frequencies(theta: float, width: int) -> tuple[float, ...]:
    """theta ** (-2i / width) for i < width / 2: the angles a step of one position turns each pair by."""
    context = decimal.Context(prec=40)
    base = decimal.Decimal(theta)
    step = context.power(base, context.divide(decimal.Decimal(-2), decimal.Decimal(width)))
    out, value = [], decimal.Decimal(1)
    for _ in range(width // 2):
        out.append(float(value))
        value = context.multiply(value, step)
    return tuple(out)


def linear(inv_freq: Sequence[float], factor: float) -> tuple[float, ...]:
    """Positions squeezed by `factor`."""
    return tuple(f / factor for f in inv_freq)


def llama3(inv_freq: Sequence[float], factor: float, low_freq_factor: float, high_freq_factor: float,
           original_context: int) -> tuple[float, ...]:
    """Llama 3.1's scaling: slow pairs squeezed by `factor`, fast ones kept, a straight blend between."""
    out = []
    for f in inv_freq:
        turns = original_context * f / TWO_PI  # full turns over the original context
        blend = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
        blend = min(1.0, max(0.0, blend))
        out.append((1.0 - blend) * f / factor + blend * f)
    return tuple(out)


def by_factors(inv_freq: Sequence[float], factors: Sequence[float]) -> tuple[float, ...]:
    """Each pair squeezed by its own factor, as GGUF files store Llama 3.1's scaling."""
    return tuple(f / g for f, g in zip(inv_freq, factors, strict=True))


def unsupported(kind: str, where: str) -> UnsupportedError:
    return UnsupportedError(f"{where}: rope scaling {quote(kind)} is not supported (supported: linear, llama3)")
