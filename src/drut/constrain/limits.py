"""Limits of a grammar's size, which are checked before any library reads it."""

from __future__ import annotations

import json
import math
from typing import Any

from drut.errors import RequestError

MAX_BYTES = 256 * 1024  # maximum of a grammar's source
MAX_COMPOSED = 4 * MAX_BYTES  # maximum of a grammar that is composed of checked parts, which may have grown
MAX_REGEX_BYTES = 32 * 1024
MAX_DEPTH = 64  # maximum nesting, in JSON and in brackets
MAX_ENUM = 5000  # maximum of values of an enum, and of a choice
MAX_PROPERTIES = 512  # maximum of properties of an object, and of required names
MAX_PATTERNS = 128  # maximum in all patternProperties of a schema: the library compares every pair
MAX_CHAIN = 4000  # maximum of nested schemas, references included: the depth of the library's recursion
MAX_RULES = 4000  # maximum of rules of a grammar, which may be a chain, too
MAX_NODES = 20_000  # maximum of values in a schema
MAX_DIGITS = 300  # maximum of an integer's digits: the range of a float
MAX_MULTIPLE = 1000  # maximum of multipleOf as an integer without its decimal point: its automaton has so many states


def check_text(name: str, text: str, max_bytes: int) -> None:
    """Raises RequestError, which names `name`, for a value that is not a string, is too long or cannot be encoded."""
    if not isinstance(text, str):
        raise RequestError(f"{name} must be a string, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise RequestError(f"{name} has a lone surrogate") from None
    if size > max_bytes:
        raise RequestError(f"{name}: {size} bytes; at most {max_bytes} are allowed")
    if "\0" in text:
        raise RequestError(f"{name} has a NUL character")


def check_nesting(name: str, text: str, *, quotes: str) -> None:
    """Raises RequestError for brackets deeper than MAX_DEPTH. Characters inside one of `quotes` and after a backslash
    are skipped."""
    depth, inside, escaped = 0, "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif inside:
            inside = "" if char == inside else inside
        elif char in quotes:
            inside = char
        elif char in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                raise RequestError(f"{name}: brackets nested more than {MAX_DEPTH} deep")
        elif char in ")]}":
            depth = max(0, depth - 1)


def read_json(name: str, text: str) -> Any:
    """Returns the value of a JSON text. Raises RequestError for invalid JSON, NaN and infinities."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_bounded_int)
    except RecursionError:
        raise RequestError(f"{name}: nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        raise RequestError(f"{name} is not valid JSON: {error}") from None


def write_json(name: str, value: object) -> str:
    """Returns a value as JSON, with its keys in order. Raises RequestError if JSON cannot express it or it is nested
    too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise RequestError(f"{name}: nested more than {MAX_DEPTH} deep") from None
    except (TypeError, ValueError) as error:
        raise RequestError(f"{name} cannot be written as JSON: {error}") from None


def check_size(name: str, root: object) -> None:
    """Raises RequestError for a JSON value beyond MAX_DEPTH or MAX_NODES."""
    stack: list[tuple[object, int]] = [(root, 0)]
    count = 0
    while stack:
        value, depth = stack.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise RequestError(f"{name}: nested more than {MAX_DEPTH} deep")
        if count > MAX_NODES:
            raise RequestError(f"{name}: more than {MAX_NODES} values")
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        stack.extend((child, depth + 1) for child in children)


def check_multiple(value: object) -> None:
    """Raises RequestError for a multipleOf that is not a number above 0, or needs too large an automaton."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise RequestError("multipleOf must be a number above 0")
    digits = repr(value)
    large = value > MAX_MULTIPLE or "e" in digits
    if large or int(digits.replace(".", "").rstrip("0") or "0") > MAX_MULTIPLE:
        raise RequestError(f"multipleOf {digits[:40]}: at most {MAX_MULTIPLE}, and as many steps, are supported")


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits; at most {MAX_DIGITS} are allowed")
    return int(digits)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
