"""Resolves each $ref of a schema: a pointer or an anchor inside one document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from drut.constrain.numbers import BOUNDS
from drut.constrain.schema.keywords import inside
from drut.errors import RequestError

Path = tuple[str, ...]
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
ANCHORS = ("$anchor", "$dynamicAnchor")


def pointer(path: Path) -> str:
    """Returns a path as a JSON pointer, truncated if it is long."""
    text = "#" + "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)
    return text if len(text) <= 160 else text[:80] + "..." + text[-77:]


def parts(root: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yields the schema and all schemas in it, with their paths."""
    stack: list[tuple[Path, Any]] = [((), root)]
    while stack:
        path, schema = stack.pop()
        yield path, schema
        if isinstance(schema, dict):
            stack += [(path + steps, member) for steps, member in inside(schema)]


class References:
    """The references of one document, which is one schema resource: a $ref below a second $id is refused."""

    def __init__(self, root: Mapping[str, Any], draft: int | None) -> None:
        self._key = "id" if draft == 4 else "$id"
        given = root.get(self._key)
        self._base = given.partition("#")[0] if isinstance(given, str) else ""
        self._schemas = dict(parts(root))
        self._anchors: dict[str, Path] = {}
        for path, schema in self._schemas.items():
            if isinstance(schema, dict):
                self._note(path, schema)

    @property
    def bounds(self) -> frozenset[float]:
        """All bounds of numbers in the document."""
        return frozenset(value for schema in self._schemas.values() if isinstance(schema, dict)
                         for key in BOUNDS if not isinstance(value := schema.get(key, True), bool))

    def of(self, schema: Mapping[str, Any]) -> list[Path]:
        """Returns the targets of this schema's references. Raises RequestError for an invalid reference."""
        return [self._target(schema[key]) for key in REFERENCES if key in schema]

    def __getitem__(self, path: Path) -> Any:
        return self._schemas[path]

    def _note(self, path: Path, schema: Mapping[str, Any]) -> None:
        given = schema.get(self._key, "")
        names = [schema[key] for key in ANCHORS if key in schema]
        if given.startswith("#") and len(given) > 1:
            names.append(given[1:])
        elif path and given.rstrip("#"):
            self._check_embedded(path, schema)
        for name in names:
            if self._anchors.setdefault(name, path) != path:
                raise RequestError(f"two schemas have the anchor {name[:60]!r}, at {pointer(path)}")

    def _check_embedded(self, path: Path, schema: Mapping[str, Any]) -> None:
        for below, part in parts(schema):
            named = [key for key in (*REFERENCES, *ANCHORS) if isinstance(part, dict) and key in part]
            if named:
                raise RequestError(f"{self._key} below the root changes what {named[0]} means: not supported, at "
                                   f"{pointer(path + below)}")

    def _target(self, ref: str) -> Path:
        base, _, fragment = ref.partition("#")
        fragment = unquote(fragment)
        if base and base != self._base:
            raise RequestError(f"$ref {ref[:80]!r} leads out of the schema")
        if not fragment.startswith("/"):
            path = self._anchors.get(fragment) if fragment else ()
            if path is None:
                raise RequestError(f"$ref {ref[:80]!r} names nothing in the schema")
            return path
        path = tuple(step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")[1:])
        if path not in self._schemas:
            what = "does not lead to a schema" if _exists(self._schemas[()], path) else "names nothing in the schema"
            raise RequestError(f"$ref {ref[:80]!r} {what}")
        return path


def _exists(value: Any, path: Path) -> bool:
    for step in path:
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return False
    return True
