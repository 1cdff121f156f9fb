"""Numbers that the library would get wrong: it reads each as a float of 64 bits, and whole ones as integers of 64.

Its reader is exact up to 15 digits and 22 decimals, so that no others are given to it.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from drut.errors import RequestError

EXACT = 1 << 53  # up to here each whole number is a float of its own
MOST_BOUND = (1 << 63) - (1 << 13)  # nearer to the end of 64 bits the library overflows, and takes the process along
DIGITS, DECIMALS = 15, 22
LEAST = Decimal(1).scaleb(-DECIMALS)
UPPER = ("maximum", "exclusiveMaximum")
BOUNDS = ("minimum", "exclusiveMinimum", *UPPER)


def check_exact(key: str, root: object) -> None:
    """RequestError naming `key` for a number in a JSON value that would come out as another one."""
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, int | float) and abs(value) > EXACT:
            raise RequestError(f"{key}: a whole number beyond 2^53 is not supported: {value!r:.40}")
        elif isinstance(value, float) and not value.is_integer() and _within(value, upper=True) != value:
            raise RequestError(f"{key}: more than {DIGITS} digits or {DECIMALS} decimals: {value!r:.40}")


def bound(key: str, value: float) -> float:
    """A bound of `key` that allows nothing more once it is a float. RequestError where none would be left."""
    upper = key in UPPER
    if value < -MOST_BOUND if upper else value > MOST_BOUND:
        raise RequestError(f"{key}: beyond 64 bits: {value!r:.40}")
    if isinstance(value, float) and not value.is_integer():
        return _within(value, upper=upper)
    near = float(min(value, MOST_BOUND) if upper else max(value, -MOST_BOUND))
    if near > value if upper else near < value:
        near = math.nextafter(near, -math.inf if upper else math.inf)
    return value if near == value else near


def beyond(key: str, value: float) -> float:
    """The next number inside an exclusive bound of `key`, as far as digits distinguish numbers."""
    upper = key in UPPER
    if not value:
        return float(-LEAST if upper else LEAST)
    if abs(value) > 10 ** (DIGITS - 1):  # no fraction is left
        return math.nextafter(float(value), -math.inf if upper else math.inf)
    context = Context(prec=DIGITS)
    decimal = Decimal(repr(value))
    return _within(float(decimal.next_minus(context) if upper else decimal.next_plus(context)), upper=upper)


def _within(value: float, *, upper: bool) -> float:
    """`value`, or the next one inside the bound with as few digits as the library reads."""
    rounding = ROUND_FLOOR if upper else ROUND_CEILING
    near = Context(prec=DIGITS, rounding=rounding).plus(Decimal(repr(value)))
    if -int(near.as_tuple().exponent) > DECIMALS:
        near = near.quantize(LEAST, rounding=rounding, context=Context(prec=60))
    return float(near)
