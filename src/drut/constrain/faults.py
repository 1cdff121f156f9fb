"""Finds the part of a schema that the library refuses. The library gives no path, so the parts are compiled one by
one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from drut.constrain.lark import JSON_BLOCK
from drut.constrain.schema.keywords import inside

MAX_PARTS, MAX_SECONDS = 300, 1.0


def place(source: str, refusal: str, refused: Callable[[str], str]) -> str:
    """Returns the path of the smallest part that is refused for the same reason; "" if none is found soon.

    `source`: a prepared schema, or a grammar that contains some; `refused` returns the reason of a refusal, or "".
    """
    deadline = time.monotonic() + MAX_SECONDS
    for root in _schemas(source):
        parts = sorted(_parts(root), key=lambda part: -len(part[1]))[:MAX_PARTS]
        rest = {key: root[key] for key in ("$defs", "x-guidance") if key in root}
        for path, _, part in parts:
            if time.monotonic() > deadline:
                return ""
            if refused(json.dumps({**part, **rest})) == refusal:
                return path
    return ""


def _schemas(source: str) -> list[dict[str, Any]]:
    if source.startswith("{"):
        return [json.loads(source)]
    found = []
    for block in JSON_BLOCK.finditer(source):
        value, _ = json.JSONDecoder().raw_decode(source, block.end())
        found += [value] if isinstance(value, dict) else []
    return found


def _parts(root: dict[str, Any]) -> list[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Returns the parts with the path that the client knows, and their own path. Paths of a definition's parts begin at
    the definition's place in the client's schema."""
    found = []
    stack: list[tuple[str, tuple[str, ...], Any]] = [("#", (), root)]
    while stack:
        path, steps, part = stack.pop()
        if not isinstance(part, dict):
            continue
        if steps:
            path = part.get("$comment", path)
        found.append((path, steps, part))
        for more, member in inside(part):
            below = path + "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in more)
            stack.append((below, (*steps, *more), member))
    return found
