"""Keywords of numbers in canonical form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_DOWN, Decimal
from typing import TYPE_CHECKING, Any

from drut.constrain import numbers
from drut.constrain.schema.keywords import Made

if TYPE_CHECKING:
    from drut.constrain.schema.canonical import Canonical

Schema = dict[str, Any]
SHARP = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def made(canonical: Canonical, given: Mapping[str, Any], kinds: list[str]) -> Made:
    """Returns the keywords of numbers, and further schemas that values must fit. Draft 4's booleans become numbers."""
    simple = {key: numbers.bound(key, value) for key, value in stated(given).items()}
    step = {key: given[key] for key in ("multipleOf",) if key in given}
    if "number" not in kinds:  # integers only
        return simple | step, []
    simple = _inclusive(simple, canonical.bounds)
    more: list[list[Schema]] = []
    if step and len(steps := _steps(step["multipleOf"])) > 1:
        more.append([{"type": "number", "multipleOf": one} for one in steps])
    else:
        simple |= step
    for key, value in simple.items():
        if key != "multipleOf" and (shorter := _shorter(value)) and (value > 0) == (key in numbers.UPPER):
            plain = "maximum" if value > 0 else "minimum"
            more.append([{"type": "number"}, *({"type": "number", plain: one} for one in shorter)])
    others = [kind for kind in kinds if kind not in ("number", "integer")]
    return simple, [{"anyOf": [*found, {"type": others}] if others else found} for found in more]


def stated(given: Mapping[str, Any]) -> dict[str, float]:
    """Returns the bounds of a schema of any draft in the form of the later drafts."""
    found = {key: given[key] for key in numbers.BOUNDS if key in given}
    for key, plain in SHARP:
        if isinstance(sharp := found.get(key), bool):
            del found[key]
            if sharp and plain in found:
                found[key] = found.pop(plain)
    return found


def _inclusive(bounds: Schema, all_bounds: frozenset[float]) -> Schema:
    """Returns the bounds with an exclusive bound replaced by the next number of the range if two such bounds may meet:
    the library accepts 2 for a number that must be above 2 and at most 2.5."""
    made = dict(bounds)
    for key, plain in SHARP:
        if key not in bounds or not any(0 < abs(other - bounds[key]) < 1 for other in all_bounds):
            continue
        inside = numbers.beyond(key, made.pop(key))
        made[plain] = (min if key in numbers.UPPER else max)(made.get(plain, inside), inside)
    return made


def _shorter(bound: float) -> list[float]:
    """Returns the decimal prefixes of a bound. The library misses them: up to 0.75 it accepts 0.70, but not 0.7."""
    decimal = Decimal(repr(bound))
    places = -int(decimal.as_tuple().exponent)
    cut = [decimal.quantize(Decimal(1).scaleb(-n), rounding=ROUND_DOWN) for n in range(1, places)]
    return [float(one) for one in dict.fromkeys(cut)]


def _steps(step: float) -> list[float]:
    """Returns a step for each number of decimals, because the library writes a multiple with all decimals of the step:
    multiples of 0.25 with fewer decimals are multiples of 0.5, and of 1."""
    decimal = Decimal(repr(step)).normalize()
    places = max(0, -int(decimal.as_tuple().exponent))
    whole = int(decimal.scaleb(places))
    found = [Decimal(math.lcm(whole, 10 ** (places - n))).scaleb(-places) for n in range(places + 1)]
    return [int(one) if one == one.to_integral() else float(one) for one in found]
