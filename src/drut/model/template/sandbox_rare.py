"""The filters of Jinja that few chat templates use, bounded like the filters of `sandbox_filters`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any

from jinja2 import filters as jinja
from jinja2 import pass_environment, pass_eval_context
from jinja2.nodes import EvalContext

from drut.model.template.sandbox_filters import LimitError, check_chars, check_items, listed

MAX_SLOW_CHARS = 64 << 10  # maximum of a value that a filter processes in Python, character by character
_MAX_URL_CHARS = 12  # maximum of one character: four bytes, each written as %XX
_MAX_ESCAPED_CHARS = 5
_WORD = re.compile(r"\w+")


def _check_slow(value: object) -> None:
    if len(str(value)) > MAX_SLOW_CHARS:
        raise LimitError(f"gave a slow filter more than {MAX_SLOW_CHARS} characters")


def _slow(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `function` so that it refuses long values."""

    def filtered(value: object, *args: Any, **kwargs: Any) -> Any:
        _check_slow(value)
        return function(value, *args, **kwargs)

    return filtered


def _batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> Iterator[list[Any]]:
    check_items(linecount)
    return jinja.do_batch(listed(value), linecount, fill_with)


def _center(value: object, width: int = 80) -> str:
    check_chars(width)
    return str(value).center(width)


@pass_environment
def _random(environment: Any, seq: Iterable[Any]) -> Any:
    """Returns always the same item of the same list, so that a conversation has one prompt."""
    items = listed(seq)
    return Random(str(items)).choice(items) if items else environment.undefined("the list is empty")


def _slice(value: Iterable[Any], slices: int, fill_with: Any = None) -> Iterator[list[Any]]:
    check_items(slices)
    return jinja.sync_do_slice(listed(value), slices, fill_with)


@pass_environment
def _sum(environment: Any, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    values = listed(iterable)
    if attribute is not None:
        values = list(map(jinja.make_attrgetter(environment, attribute), values))
    if isinstance(start, str) or all(isinstance(value, (int, float)) for value in (start, *values)):
        return sum(values, start)  # strings raise an error
    for value in values:  # lists, for example: each sum is a copy
        start = environment.bounded(start + value)
    return start


def _urlencode(value: Any) -> str:
    value = listed(value) if isinstance(value, Iterator) else value
    check_chars(_MAX_URL_CHARS * len(str(value)))
    return jinja.do_urlencode(value)


@pass_eval_context
def _urlize(eval_ctx: EvalContext, value: str, trim_url_limit: int | None = None, nofollow: bool = False,
            target: str | None = None, rel: str | None = None, extra_schemes: Iterable[str] | None = None) -> str:
    schemes = None if extra_schemes is None else listed(extra_schemes)
    _check_slow(value)
    _check_slow((schemes, target, rel))
    check_chars(len(value) * (len(target or "") + len(rel or "")))
    return jinja.do_urlize(eval_ctx, value, trim_url_limit, nofollow, target, rel, schemes)


@pass_environment
def _wordcount(environment: Any, s: object) -> int:
    count = 0
    for _ in _WORD.finditer(str(s)):
        environment.tick()
        count += 1
    return count


@pass_environment
def _wordwrap(environment: Any, s: str, width: int = 79, break_long_words: bool = True,
              wrapstring: str | None = None, break_on_hyphens: bool = True) -> str:
    _check_slow(s)
    check_chars(len(s) * (1 + len(wrapstring or "")))
    return jinja.do_wordwrap(environment, s, width, break_long_words, wrapstring, break_on_hyphens)


@pass_eval_context
def _xmlattr(eval_ctx: EvalContext, d: Mapping[str, Any], autospace: bool = True) -> str:
    check_chars(_MAX_ESCAPED_CHARS * len(str(d)))
    return jinja.do_xmlattr(eval_ctx, d, autospace)


RARE: Mapping[str, Callable[..., Any]] = {
    **{name: jinja.FILTERS[name] for name in ("attr", "filesizeformat", "truncate")},
    **{name: _slow(jinja.FILTERS[name]) for name in ("pprint", "striptags")},
    **{function.__name__.lstrip("_"): function
       for function in (_batch, _center, _random, _slice, _sum, _urlencode, _urlize, _wordcount, _wordwrap, _xmlattr)},
}
