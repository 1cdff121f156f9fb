"""Accepts the regular expressions of a `tokenizer.json` that take bounded time per character of the text.

The library searches by backtracking and cannot be interrupted: `[ab]*[ab]*[ab]*[cd]` takes seconds for every few
hundred letters, and the library's limit of tries applies to each position of the text. So the form of a pattern
decides, when a file is read. An alternative may repeat without bound only if nothing after it must match: then it never
backtracks. Two well-known expressions break that rule and are linear nevertheless, and so are the expressions of Drut's
own pre-tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from drut.errors import UnsupportedError
from drut.model.tokenizer.splitting import PATTERNS

MAX_TRIES = 1000  # maximum at one position of the text, over all patterns

_UPPER, _LOWER, _MARK = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[^\r\n\p{L}\p{N}]?"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# The second of two alternatives matches the whole rest of the first: a run without lower case.
_HEADS = tuple(f"{_MARK}{_UPPER}*{_LOWER}+{end}|{_MARK}{_UPPER}+{_LOWER}*{end}|" for end in ("", _SUFFIX))
# White space is matched up to its last line end, then up to its last character, then whole: at most three tries.
_TAILS = (r"|\s*[\r\n]+|\s+(?!\S)|\s+", r"|\s*[\r\n]|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s+")

_ESCAPE = r"(?:\\[pP]\{\^?\w+\}|\\[sSdDwWrnt]|\\u[0-9A-Fa-f]{4}|\\\W)"
_CLASS = rf"\[\^?(?:{_ESCAPE}|[^\[\]\\^])(?:{_ESCAPE}|[^\[\]\\])*\]"
_PART = re.compile(
    rf"(?:(?P<words>\(\?i?:['\w|]+\))|{_ESCAPE}|{_CLASS}|[^\\\[\](){{}}*+?|^$])"
    r"(?P<repeat>[*+?]|\{\d{1,4}(?:,\d{0,4})?\})?"
)
_COUNTS: dict[str | None, tuple[int, int | None]] = {None: (1, 1), "?": (0, 1), "*": (0, None), "+": (1, None)}


def check_patterns(parts: list[Any], name: str) -> None:
    """Raises UnsupportedError for a pattern in `parts`, states of a tokenizer's parts, that may take unbounded time."""
    tries = 0
    for kind, pattern in _patterns(parts):
        if pattern in PATTERNS:
            continue
        of_this = _tries(pattern) if kind == "Regex" else len(pattern)
        if of_this is None or (tries := tries + of_this) > MAX_TRIES:
            shown = repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")
            raise UnsupportedError(f"{name}: the pattern {shown} is not supported: it may take unbounded time")


def _patterns(value: Any) -> Iterator[tuple[str, str]]:
    """Yields the patterns in a part's state, through sequences of parts: `Regex` or `String`, and the text."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "pattern" and isinstance(inner, dict):
                yield from inner.items()
            else:
                yield from _patterns(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _patterns(inner)


def _tries(pattern: str) -> int | None:
    """Returns the maximum of steps for a failure at one position; None if there is no known bound."""
    for head in _HEADS:
        pattern = pattern.removeprefix(head)
    for tail in _TAILS:
        pattern = pattern.removesuffix(tail)
    total, at = 0, 0
    while at <= len(pattern):
        tries, at = _alternative(pattern, at)
        if tries is None:
            return None
        total += tries
    return total


def _alternative(pattern: str, at: int) -> tuple[int | None, int]:
    """Returns the tries of the alternative that starts at `at`, None without a bound, and the start of the next one."""
    ways, length, endless = 1, 1, False
    while at < len(pattern) and pattern[at] != "|":
        part = _PART.match(pattern, at)
        if part is None:
            return None, at
        words, repeat, at = part["words"], part["repeat"], part.end()
        low, high = _COUNTS[repeat] if repeat in _COUNTS else _interval(repeat)
        if (endless and low) or (words and high != 1):
            return None, at
        endless |= high is None
        ways *= (low if high is None else high) - low + 1 + (words.count("|") if words else 0)
        length += (low if high is None else high) * len(words or "1")
        if ways * length > MAX_TRIES:
            return None, at
    return ways * length, at + 1


def _interval(repeat: str) -> tuple[int, int | None]:
    low, comma, high = repeat[1:-1].partition(",")
    return int(low), (int(high) if high else None) if comma else int(low)
