"""The drafts of JSON Schema, and how a schema says which one it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drut.errors import RequestError

DRAFTS = {"json-schema.org/draft-04/schema": 4, "json-schema.org/draft-06/schema": 6,
          "json-schema.org/draft-07/schema": 7, "json-schema.org/draft/2019-09/schema": 2019,
          "json-schema.org/draft/2020-12/schema": 2020, "json-schema.org/schema": None}


def draft_of(root: Mapping[str, Any]) -> int | None:
    """Of the whole document; None where it does not say, and keywords of all drafts are known, with the meaning that
    2020-12 gives to those that it has. RequestError for a draft that is not known."""
    given = root.get("$schema")
    if given is None:
        return None
    if not isinstance(given, str):
        raise RequestError("$schema must be a string, at #")
    name = given.partition("://")[2].rstrip("#/")
    if name not in DRAFTS:
        raise RequestError(f"$schema {given[:80]!r} is not known: one of draft 4, 6, 7, 2019-09 and 2020-12 is, at #")
    return DRAFTS[name]
