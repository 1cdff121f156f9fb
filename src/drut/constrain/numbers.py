"""Numbers that the library would get wrong: it reads each as a float of 64 bits, and whole ones as integers of 64."""

from __future__ import annotations

import math

from drut.errors import RequestError

EXACT = 1 << 53  # up to here a float tells every whole number from the next
MOST_BOUND = (1 << 63) - (1 << 13)  # nearer to the end of 64 bits the library overflows, and takes the process along
UPPER = ("maximum", "exclusiveMaximum")
BOUNDS = ("minimum", "exclusiveMinimum", *UPPER)


def check_exact(key: str, root: object) -> None:
    """RequestError naming `key` for a whole number in a JSON value that would come out as another one."""
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, int | float) and abs(value) > EXACT:
            raise RequestError(f"{key}: a whole number beyond 2^53 is not supported: {value!r:.40}")


def bound(key: str, value: object) -> object:
    """A bound of `key` that allows nothing more once it is a float. RequestError where none would be left."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    upper = key in UPPER
    if value < -MOST_BOUND if upper else value > MOST_BOUND:
        raise RequestError(f"{key}: beyond 64 bits: {value!r:.40}")
    near = float(min(value, MOST_BOUND) if upper else max(value, -MOST_BOUND))
    if near > value if upper else near < value:
        near = math.nextafter(near, -math.inf if upper else math.inf)
    return value if near == value else near
