"""Checks numbers that the library would misread: it reads each as a float of 64 bits, and integers as 64 bits.

Its reader is exact up to 15 digits and 22 decimals, so it gets no other numbers.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from drut.errors import RequestError

EXACT = 1 << 53  # up to here each integer is a different float
MAX_BOUND = (1 << 63) - (1 << 13)  # hazard: closer to the end of 64 bits the library overflows and ends the process
DIGITS, DECIMALS = 15, 22
MIN = Decimal(1).scaleb(-DECIMALS)
UPPER = ("maximum", "exclusiveMaximum")
BOUNDS = ("minimum", "exclusiveMinimum", *UPPER)


def check_exact(key: str, root: object) -> None:
    """Raises RequestError, which names `key`, for a number in a JSON value that the library would change."""
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, int | float) and abs(value) > EXACT:
            raise RequestError(f"{key}: an integer beyond 2^53 is not supported: {value!r:.40}")
        elif isinstance(value, float) and not value.is_integer() and _within(value, upper=True) != value:
            raise RequestError(f"{key}: more than {DIGITS} digits or {DECIMALS} decimals: {value!r:.40}")


def bound(key: str, value: float) -> float:
    """Returns a bound of `key` as a float that allows no more than the bound. Raises RequestError if none remains."""
    upper = key in UPPER
    if value < -MAX_BOUND if upper else value > MAX_BOUND:
        raise RequestError(f"{key}: beyond 64 bits: {value!r:.40}")
    if isinstance(value, float) and not value.is_integer():
        return _within(value, upper=upper)
    near = float(min(value, MAX_BOUND) if upper else max(value, -MAX_BOUND))
    if near > value if upper else near < value:
        near = math.nextafter(near, -math.inf if upper else math.inf)
    return value if near == value else near


def beyond(key: str, value: float) -> float:
    """Returns the next number inside an exclusive bound of `key`, with the library's number of digits."""
    upper = key in UPPER
    if not value:
        return float(-MIN if upper else MIN)
    if abs(value) > 10 ** (DIGITS - 1):  # numbers of this size have no fraction
        return math.nextafter(float(value), -math.inf if upper else math.inf)
    context = Context(prec=DIGITS)
    decimal = Decimal(repr(value))
    return _within(float(decimal.next_minus(context) if upper else decimal.next_plus(context)), upper=upper)


def _within(value: float, *, upper: bool) -> float:
    """Returns `value`, or the next number inside the bound with as few digits as the library reads."""
    rounding = ROUND_FLOOR if upper else ROUND_CEILING
    near = Context(prec=DIGITS, rounding=rounding).plus(Decimal(repr(value)))
    if -int(near.as_tuple().exponent) > DECIMALS:
        near = near.quantize(MIN, rounding=rounding, context=Context(prec=60))
    return float(near)
