"""Checks of unique names in a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from drut.errors import RequestError


def check_names(names: Sequence[str], none: str, twice: str) -> None:
    """Raises RequestError: with the text `none` if there is no name, with `twice` if a name occurs twice ({} stands for
    it)."""
    if not names:
        raise RequestError(none)
    for name in names:
        if names.count(name) > 1:
            raise RequestError(twice.format(repr(name)))
