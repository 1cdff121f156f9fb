"""Names that tell the parts of a comparison apart."""

from __future__ import annotations

from collections.abc import Sequence

from drut.errors import RequestError


def check_names(names: Sequence[str], none: str, twice: str) -> None:
    """Raises RequestError: `none` where there is no name, and where one comes again `twice`, with it in the place of
    {}."""
    if not names:
        raise RequestError(none)
    for name in names:
        if names.count(name) > 1:
            raise RequestError(twice.format(repr(name)))
