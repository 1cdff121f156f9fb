"""The drafts of JSON Schema, and how a schema names its draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drut.errors import RequestError

DRAFTS = {"json-schema.org/draft-04/schema": 4, "json-schema.org/draft-06/schema": 6,
          "json-schema.org/draft-07/schema": 7, "json-schema.org/draft/2019-09/schema": 2019,
          "json-schema.org/draft/2020-12/schema": 2020, "json-schema.org/schema": None}


def draft_of(root: Mapping[str, Any]) -> int | None:
    """Returns the draft of the whole document; None if it names none: then keywords of all drafts are valid, and those
    of 2020-12 have the meaning of 2020-12. Raises RequestError for an unknown draft."""
    given = root.get("$schema")
    if given is None:
        return None
    if not isinstance(given, str):
        raise RequestError("$schema must be a string, at #")
    name = given.partition("://")[2].rstrip("#/")
    if name not in DRAFTS:
        raise RequestError(f"$schema {given[:80]!r} is not known; drafts 4, 6, 7, 2019-09 and 2020-12 are, at #")
    return DRAFTS[name]
