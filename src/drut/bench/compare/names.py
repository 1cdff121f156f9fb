"""Names of contestants and of their versions."""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.compare.schema import Contestant
from drut.errors import RequestError


def check_names(names: Sequence[str], none: str, twice: str) -> None:
    """Raises RequestError: with the text `none` if there is no name, with `twice` if a name occurs twice ({} stands for
    it)."""
    if not names:
        raise RequestError(none)
    for name in names:
        if names.count(name) > 1:
            raise RequestError(twice.format(repr(name)))


def engine_of(c: Contestant) -> str:
    """Returns the engine with the first version that is not that of its platform."""
    versions = [f"{name} {version}" for name, version in c.versions.items() if name not in ("python", "compiler")]
    return f"{c.title} ({versions[0]})" if versions else c.title
