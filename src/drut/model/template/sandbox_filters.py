"""The filters and methods that a bounded template may use, with the checks before each runs.

All filters of Jinja are here or in `sandbox_rare`. A method outside METHODS raises an error that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from jinja2 import Environment
from jinja2 import filters as jinja
from jinja2.exceptions import SecurityError

MAX_CHARS = 8 << 20  # maximum of one string, of the strings inside one value, and of the output
MAX_ITEMS = 100_000  # maximum of one list, over all levels
_MAX_COMPARISONS = 1 << 28  # maximum of character comparisons in one method
_MAX_WIDTH = 64  # maximum of an indentation

_PLAIN = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float",
    "forceescape", "int", "items", "last", "length", "lower", "safe", "string", "upper",
)  # fmt: skip
_ITERATING = ("map", "max", "min", "reject", "rejectattr", "select", "selectattr", "unique")

METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset((
        "capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "index", "isalnum", "isalpha",
        "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle",
        "isupper", "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind",
        "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase",
        "title", "upper", "zfill",
    )),
    int: frozenset(("bit_length", "bit_count")),
    float: frozenset(("is_integer",)),
    list: frozenset(("count", "index", "copy")),
    tuple: frozenset(("count", "index", "grouper", "list")),  # the last two: items of `groupby`
    dict: frozenset(("get", "items", "keys", "values", "copy")),
}  # fmt: skip

_PADDING = frozenset(("center", "ljust", "rjust", "zfill"))  # methods that pad to a width
# Methods whose cost is the product of two lengths.
_QUADRATIC = frozenset(("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition", "rsplit"))
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_CONVERSION = re.compile(r"%(?:\(\w*\))?[-+ #0]*\d{0,3}(?:\.\d{0,3})?[a-zA-Z%]")
_WIDEST_NUMBER = 2000  # maximum of characters that _CONVERSION makes of a number


class LimitError(SecurityError):
    """A template exceeded a limit, which the message names."""


def check_chars(count: int) -> None:
    """Raises LimitError if `count` characters are more than the maximum of a text."""
    if count > MAX_CHARS:
        raise LimitError(f"made a text of more than {MAX_CHARS} characters")


def check_items(count: int) -> None:
    """Raises LimitError if `count` items are more than the maximum of a list."""
    if count > MAX_ITEMS:
        raise LimitError(f"made a list of more than {MAX_ITEMS} items")


def listed(values: Iterable[Any]) -> list[Any]:
    """Returns the values as a list; reads at most as many as a list may have."""
    items: list[Any] = []
    for item in values:
        check_items(len(items) + 1)
        items.append(item)
    return items


def joined(separator: str, parts: Iterable[Any]) -> str:
    """Returns the parts as text, with `separator` between them."""
    texts, size = [], -len(separator)
    for part in parts:
        text = str(part)
        size += len(separator) + len(text)
        check_chars(size)
        texts.append(text)
    return separator.join(texts)


def check_percent(form: str, values: object) -> None:
    """Raises LimitError if `form % values` could be too long, SecurityError for a width of four digits or `*`."""
    if "%" in _CONVERSION.sub("", form):
        raise SecurityError("a conversion in a format string is not supported")
    if isinstance(values, Mapping):
        given = tuple(values.values())
    else:
        given = values if isinstance(values, tuple) else (values,)
    longest = max((len(str(value)) for value in given), default=0)
    check_chars(len(form) + form.count("%") * max(longest, _WIDEST_NUMBER))


def check_method(
    owner: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Returns the arguments for the string method `name`. Raises LimitError if it could take too long or return too
    much."""
    if name == "join" and args:
        items = listed(args[0])
        check_chars(sum(len(item) + len(owner) for item in items if isinstance(item, str)))
        return (items, *args[1:])
    if name == "replace" and len(args) > 1:
        _check_replace(owner, *args[:2])
    elif name in ("split", "rsplit") and len(owner) > MAX_ITEMS:
        separator = args[0] if args else kwargs.get("sep")
        check_items(len(owner.split(separator, MAX_ITEMS)))
    elif name == "splitlines":
        check_items(_line_count(owner))
    elif name in _PADDING and args:
        check_chars(args[0])
    elif name == "expandtabs":
        check_chars(owner.count("\t") * (args[0] if args else kwargs.get("tabsize", 8)))
    if name in _QUADRATIC:
        _check_product(owner, *args, *kwargs.values())
    return args


def _check_replace(text: str, old: object, new: object) -> None:
    if isinstance(old, str) and isinstance(new, str):
        check_chars(len(text) + text.count(old) * len(new))


def _check_product(text: str, *args: object) -> None:
    if any(isinstance(arg, str) and len(text) * len(arg) > _MAX_COMPARISONS for arg in args):
        raise LimitError("searched a long text for a long text")


def _line_count(text: str) -> int:
    return sum(map(text.count, _LINE_ENDS)) + 1


def filters(environment: Environment) -> dict[str, Callable[..., Any]]:
    """Returns the filters by name. Filters that need an environment get `environment`."""

    def join(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        _check_iterable(value)
        part = (lambda item: item) if attribute is None else jinja.make_attrgetter(environment, attribute)
        return joined(str(d), map(part, value))

    def sort(value: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        return jinja.do_sort(environment, listed(value), *args, **kwargs)

    def groupby(value: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        return list(jinja.sync_do_groupby(environment, listed(value), *args, **kwargs))

    own = (_format, _indent, _replace, _reverse, _round, _title, _tojson, _trim)
    return {
        **{name: jinja.FILTERS[name] for name in _PLAIN},
        **{name: _iterating(jinja.FILTERS[name]) for name in _ITERATING},
        **{function.__name__.lstrip("_"): function for function in own},
        "join": join,
        "sort": sort,
        "groupby": groupby,
        "list": listed,
    }


def _iterating(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `function`, a filter whose second argument is the value, so that it refuses to iterate over a long text."""

    @wraps(function)  # keeps the mark by which Jinja knows the first argument
    def filtered(context: object, value: object, *args: Any, **kwargs: Any) -> Any:
        _check_iterable(value)
        return function(context, value, *args, **kwargs)

    return filtered


def _check_iterable(value: object) -> None:
    if isinstance(value, str):
        check_items(len(value))


def _format(value: object, *args: Any, **kwargs: Any) -> str:
    form, values = str(value), kwargs or args
    check_percent(form, values)
    return form % values


def _indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    size = width if isinstance(width, int) else len(width)
    if size > _MAX_WIDTH:
        raise LimitError(f"indented by more than {_MAX_WIDTH}")
    lines = _line_count(str(s))
    check_items(lines)
    check_chars(len(s) + lines * size)
    return jinja.do_indent(s, width, first, blank)


def _replace(s: object, old: object, new: object, count: int | None = None) -> str:
    text, old, new = str(s), str(old), str(new)
    _check_replace(text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _reverse(value: Iterable[Any]) -> Iterable[Any]:
    return value[::-1] if isinstance(value, str) else reversed(listed(value))


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > _MAX_WIDTH:
        raise LimitError(f"rounded to more than {_MAX_WIDTH} digits")
    return jinja.do_round(value, precision, method)


def _title(s: object) -> str:
    _check_iterable(s)
    return jinja.do_title(str(s))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Returns JSON without HTML escapes, as Hugging Face's renderer does and templates expect."""
    for part in (indent, *(separators or ())):
        if (len(part) if isinstance(part, str) else part or 0) > _MAX_WIDTH:
            raise LimitError(f"indented by more than {_MAX_WIDTH}")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _trim(value: object, chars: str | None = None) -> str:
    text = str(value)
    _check_product(text, chars)
    return text.strip(chars)
