"""Rotary frequencies, and their scaling for longer contexts.

Powers and logarithms are computed in decimal arithmetic and rounded once to float64, so that the bits do not depend on
a platform's `pow` or `log`.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drut.errors import ModelFileError, UnsupportedError
from drut.model.spec import Rope
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional, require, require_list

TWO_PI = 6.283185307179586
SCALINGS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True)
class Base:
    """Settings before scaling: base `theta`, `width` rotated elements of a head. `where` names the file in errors."""

    theta: float
    width: int
    where: str

    @property
    def frequencies(self) -> tuple[float, ...]:
        if not 1 <= self.theta <= 1e12:
            raise ModelFileError(f"{self.where}: rope base {self.theta} is outside 1..1e12")
        if self.width % 2 or not 2 <= self.width <= 256:
            raise UnsupportedError(f"{self.where}: rope over {self.width} elements of a head is not supported")
        return frequencies(self.theta, self.width)


def frequencies(theta: float, width: int) -> tuple[float, ...]:
    """Returns theta ** (-2i / width) for i < width / 2: the rotation of each pair per position, in radians."""
    context = decimal.Context(prec=40)
    base = decimal.Decimal(theta)
    step = context.power(base, context.divide(decimal.Decimal(-2), decimal.Decimal(width)))
    out, value = [], decimal.Decimal(1)
    for _ in range(width // 2):
        out.append(float(value))
        value = context.multiply(value, step)
    return tuple(out)


def log(x: float) -> float:
    return float(decimal.Context(prec=40).ln(decimal.Decimal(x)))


def scaled(kind: str, base: Base, table: Mapping[str, object], context: int, where: str) -> Rope:
    """Returns the rope of scaling `kind` with the settings of `table`, whose keys are those of a `config.json`.

    `dynamic` changes the base only for sequences longer than `context`, which are refused, so it is plain rope here.
    """
    f = base.frequencies
    match kind:
        case "default" | "dynamic":
            return Rope(f)
        case "linear":
            return Rope(linear(f, positive(table, "factor", where)))
        case "llama3":
            low, high = (positive(table, f"{name}_freq_factor", where) for name in ("low", "high"))
            if not low < high:
                raise ModelFileError(f"{where}: low_freq_factor {low} is not below high_freq_factor {high}")
            return Rope(llama3(f, positive(table, "factor", where), low, high, _original(table, context, where)))
        case "yarn":
            return _yarn(base, f, table, context, where)
        case "longrope" | "su":
            return _longrope(f, table, context, where)
    raise unsupported(kind, where)


def linear(inv_freq: Sequence[float], factor: float) -> tuple[float, ...]:
    """Returns the frequencies divided by `factor` (linear position interpolation)."""
    return tuple(f / factor for f in inv_freq)


def llama3(inv_freq: Sequence[float], factor: float, low_freq_factor: float, high_freq_factor: float,
           original_context: int) -> tuple[float, ...]:
    """Returns frequencies by Llama 3.1's scaling: low ones divided by `factor`, high ones unchanged, a linear blend
    between."""
    out = []
    for f in inv_freq:
        turns = original_context * f / TWO_PI  # full turns over the original context
        blend = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
        blend = min(1.0, max(0.0, blend))
        out.append((1.0 - blend) * f / factor + blend * f)
    return tuple(out)


def yarn(base: Base, inv_freq: Sequence[float], factor: float, original_context: int, beta_fast: float = 32.0,
         beta_slow: float = 1.0, truncate: bool = True) -> tuple[float, ...]:
    """Returns frequencies by YaRN (Peng et al., 2023): pairs with many rotations over the original context are
    unchanged, pairs with few are divided by `factor`, with a linear ramp between."""

    def pair_of(turns: float) -> float:
        return base.width * log(original_context / (turns * TWO_PI)) / (2 * log(base.theta))

    low, high = pair_of(beta_fast), pair_of(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, base.width - 1.0)
    high = high + 0.001 if low == high else high
    ramp = [min(1.0, max(0.0, (i - low) / (high - low))) for i in range(len(inv_freq))]
    return tuple(f / factor * r + f * (1.0 - r) for f, r in zip(inv_freq, ramp, strict=True))


def yarn_scale(factor: float, amount: float = 1.0) -> float:
    """Returns YaRN's scale of cosines and sines."""
    return 0.1 * amount * log(factor) + 1.0 if factor > 1 else 1.0


def _yarn(base: Base, inv_freq: Sequence[float], table: Mapping[str, object], context: int, where: str) -> Rope:
    original = _original(table, context, where)
    given = table.get("factor") is not None or table.get("original_max_position_embeddings") is None
    factor = positive(table, "factor", where) if given else context / original
    scale = optional(table, "attention_factor", float, where)
    over, under = (optional(table, key, float, where, 0.0) for key in ("mscale", "mscale_all_dim"))
    if scale is None:
        scale = yarn_scale(factor, over) / yarn_scale(factor, under) if over and under else yarn_scale(factor)
    fast = optional(table, "beta_fast", float, where, 32.0) or 32.0
    slow = optional(table, "beta_slow", float, where, 1.0) or 1.0
    if not fast > slow > 0 or base.theta <= 1:
        raise ModelFileError(f"{where}: beta_fast {fast} is not above beta_slow {slow}, or beta_slow is not positive")
    truncate = optional(table, "truncate", bool, where, True)
    return Rope(yarn(base, inv_freq, factor, original, fast, slow, truncate), scale)


def longrope(inv_freq: Sequence[float], short: Sequence[float], long: Sequence[float], original_context: int,
             scale: float) -> Rope:
    """Returns LongRoPE's rope: factors of each pair for sequences within the original context, and others for longer
    ones."""
    return Rope(by_factors(inv_freq, short), scale, original_context, Rope(by_factors(inv_freq, long), scale))


def longrope_scale(factor: float, original_context: int) -> float:
    """Returns LongRoPE's scale of cosines and sines."""
    return math.sqrt(1.0 + log(factor) / log(original_context)) if factor > 1 else 1.0


def _longrope(inv_freq: Sequence[float], table: Mapping[str, object], context: int, where: str) -> Rope:
    original = _original(table, context, where)
    factor = optional(table, "factor", float, where, context / original)
    scale = optional(table, "attention_factor", float, where, longrope_scale(factor, original))
    short, long = (require_list(table, key, float, where) for key in ("short_factor", "long_factor"))
    for key, values in (("short_factor", short), ("long_factor", long)):
        if len(values) != len(inv_freq):
            raise ModelFileError(f"{where}: {key} has {len(values)} values, expected {len(inv_freq)}")
        if not all(0 < value < 1e9 for value in values):
            raise ModelFileError(f"{where}: {key} holds a value that is not positive")
    return longrope(inv_freq, short, long, original, scale)


def _original(table: Mapping[str, object], context: int, where: str) -> int:
    """Returns the context that the model was first trained with; `context` if the table has no key."""
    original = optional(table, "original_max_position_embeddings", int, where, context)
    if original < 2:
        raise ModelFileError(f"{where}: original_max_position_embeddings is {original}")
    return original


def positive(table: Mapping[str, object], key: str, where: str) -> float:
    value = require(table, key, float, where)
    if not value > 0:
        raise ModelFileError(f"{where}: {key} is {value}, not positive")
    return value


def by_factors(inv_freq: Sequence[float], factors: Sequence[float]) -> tuple[float, ...]:
    """Returns each frequency divided by its own factor."""
    return tuple(f / g for f, g in zip(inv_freq, factors, strict=True))


def unsupported(kind: str, where: str) -> UnsupportedError:
    return UnsupportedError(f"{where}: rope scaling {quote(kind)} is not supported (supported: {', '.join(SCALINGS)})")
