"""Rotary frequencies, and the ways models stretch them over longer contexts.

The powers and logarithms are taken in decimal arithmetic and rounded once to float64, so that no platform's `pow` or
`log` shows in the bits.
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
    """What scaling starts from: base `theta`, `width` turned elements of a head. `where` is for errors."""

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
    """theta ** (-2i / width) for i < width / 2: the angles a step of one position turns each pair by."""
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
    """The rope of scaling `kind` with the settings of `table`, named as in a `config.json`.

    `dynamic` changes its base with the length of a sequence past `context` only, where none goes: within, it is plain.
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


def yarn(base: Base, inv_freq: Sequence[float], factor: float, original_context: int, beta_fast: float = 32.0,
         beta_slow: float = 1.0, truncate: bool = True) -> tuple[float, ...]:
    """YaRN (Peng et al., 2023): pairs that turn often over the original context are kept, those that turn seldom
    squeezed, a ramp over the pairs between."""

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
    """Of cosines and sines."""
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
        raise ModelFileError(f"{where}: beta_fast {fast} is not above beta_slow {slow}, or that is not positive")
    truncate = optional(table, "truncate", bool, where, True)
    return Rope(yarn(base, inv_freq, factor, original, fast, slow, truncate), scale)


def longrope(inv_freq: Sequence[float], short: Sequence[float], long: Sequence[float], original_context: int,
             scale: float) -> Rope:
    """LongRoPE: factors of each pair for sequences within the original context, and others for longer ones."""
    beyond = Rope(by_factors(inv_freq, long), scale)
    return Rope(by_factors(inv_freq, short), scale, original_context, beyond)


def longrope_scale(factor: float, original_context: int) -> float:
    """Of cosines and sines."""
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
    """The context that the model was trained with first: all of `context` where the table does not say."""
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
    """Each pair squeezed by its own factor."""
    return tuple(f / g for f, g in zip(inv_freq, factors, strict=True))


def unsupported(kind: str, where: str) -> UnsupportedError:
    return UnsupportedError(f"{where}: rope scaling {quote(kind)} is not supported (supported: {', '.join(SCALINGS)})")
