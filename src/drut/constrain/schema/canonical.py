"""Converts a schema of any draft to one canonical form: 2020-12 without redundant keywords, and with only the keywords
that the grammar library handles exactly. A schema without such a form is refused, with its keyword and its path.

The keywords are `type`, `enum`, `const`, `allOf`, `anyOf`, `oneOf`, `$ref` to `#` or `#/$defs/N`, and the keywords of
arrays, objects, strings and numbers that the library reads; `alternatives.py` removes `oneOf`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drut.constrain import limits
from drut.constrain.schema import arrays, figures, objects, strings
from drut.constrain.schema.keywords import KEYWORDS, TYPES
from drut.constrain.schema.references import Path, References, pointer
from drut.errors import RequestError

Schema = dict[str, Any]
BEFORE = ("properties", "patternProperties", "additionalProperties", "required")  # they determine the order of names


class Canonical:
    """Makes `root` and `definitions` from a checked document; `paths` has the origin of each schema."""

    def __init__(self, document: Mapping[str, Any], draft: int | None, references: References) -> None:
        self.draft = draft
        self._document, self._references = document, references
        self._names: dict[Path, str] = {}  # definitions, in the order in which they are found
        self._made = 0
        self.bounds = references.bounds
        self.paths: dict[int, Path] = {}
        self.definitions: dict[str, Schema | bool] = {}
        self.root = self.schema(document, ())
        while len(self.definitions) < len(self._names):
            path, name = list(self._names.items())[len(self.definitions)]
            made = self.schema(references[path], path)
            self.definitions[name] = made
            if isinstance(made, dict):
                made["$comment"] = pointer(path)  # for the library's error messages

    def schema(self, given: Mapping[str, Any] | bool, path: Path) -> Schema | bool:
        """Returns the canonical form of the schema at `path`."""
        self._made += 1
        if self._made > limits.MAX_NODES:
            raise RequestError(f"schemas behind $ref amount to more than {limits.MAX_NODES} schemas")
        if isinstance(given, bool):
            return given
        try:
            made = self._object(given, path)
        except RequestError as error:
            if ", at #" in str(error):
                raise
            raise RequestError(f"{error}, at {pointer(path)}") from None
        if isinstance(made, dict):
            self.paths[id(made)] = path
        elif path == () and made is False:
            named = [key for key in given if key in KEYWORDS]
            raise RequestError(f"no value fits {', '.join(named[:8])} together, at #")
        return made

    def plain(self, schema: Schema | bool) -> Schema:
        """Returns the schema itself, behind a $ref or an allOf with one member."""
        for _ in range(limits.MAX_DEPTH):
            if isinstance(schema, dict) and schema.keys() == {"allOf"} and len(schema["allOf"]) == 1:
                schema = schema["allOf"][0]
            elif isinstance(schema, dict) and schema.keys() == {"$ref"} and schema["$ref"] != "#":
                path = next(path for path, name in self._names.items() if schema["$ref"] == f"#/$defs/{name}")
                schema = self.schema(self._references[path], path)
            else:
                break
        return dict(schema) if isinstance(schema, dict) else {}

    def _object(self, given: Mapping[str, Any], path: Path) -> Schema | bool:
        if self.draft is not None and self.draft <= 7 and "$ref" in given:
            given = {"$ref": given["$ref"]}  # in these drafts siblings of $ref have no effect
        kinds = self._kinds(given, path)
        simple: Schema = {}
        more: list[Schema] = []  # further schemas that a value must fit
        for of_type, make in (("array", arrays.made), ("object", objects.made), ("string", strings.made)):
            if of_type not in kinds:
                continue
            found = make(self, given, path)
            if found is None:  # no value of that type fits
                kinds = [kind for kind in kinds if kind != of_type]
                continue
            simple |= found[0]
            more += found[1]
        if "number" in kinds or "integer" in kinds:
            bounds, besides = figures.made(self, given, kinds)
            simple |= bounds
            more += besides
        return self._joined(given, path, kinds, simple, more)

    def _joined(self, given: Mapping[str, Any], path: Path, kinds: list[str], simple: Schema,
                more: list[Schema]) -> Schema | bool:
        """Returns the schema with the keywords that apply to values of all types, in the order of the keywords."""
        first: list[tuple[str, Any]] = []
        last: list[tuple[str, Any]] = []
        names_seen = False
        for key in given:
            names_seen = names_seen or key in BEFORE
            if (applied := self._applied(key, given, path, kinds)) is None:
                continue
            if applied is False:
                return False
            if applied is not True:
                (last if names_seen else first).append((key, applied))
        if not kinds:
            return False
        typed: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds} if set(kinds) != _all_types() else {}
        siblings = [[_as_schema(*one) for one in some] for some in (first, last)]
        return _merged([*siblings[0], typed | simple, *siblings[1]], more)

    def _kinds(self, given: Mapping[str, Any], path: Path) -> list[str]:
        """Returns the types that a value may have; `number` includes `integer`."""
        kinds = given.get("type", [kind for kind in TYPES if kind != "integer"])
        kinds = list(dict.fromkeys([kinds] if isinstance(kinds, str) else kinds))
        kinds = [kind for kind in kinds if kind != "integer" or "number" not in kinds]
        if "not" not in given:
            return kinds
        refused = self.schema(given["not"], (*path, "not"))
        if refused is False:
            return kinds
        if refused is True:
            return []
        if isinstance(refused, dict) and refused.keys() == {"type"}:
            named = refused["type"] if isinstance(refused["type"], list) else [refused["type"]]
            if "integer" not in named or "number" not in kinds:
                return [kind for kind in kinds if kind not in named and not (kind == "integer" and "number" in named)]
        raise RequestError("the keyword 'not' is not supported here")

    def _applied(self, key: str, given: Mapping[str, Any], path: Path, kinds: list[str]) -> Any:
        """Returns the canonical value of a keyword for values of all types; None for other keywords; True or False if
        the schema with only this keyword has that form."""
        value = given[key]
        match key:
            case "const":
                return _literal(value, kinds) or False
            case "enum":
                return [member for v in value for member in _literal(v, kinds)] or False
            case "$ref" | "$dynamicRef" | "$recursiveRef":
                return self._referred(given[key])
            case "allOf":
                members = [self.schema(member, (*path, key, str(i))) for i, member in enumerate(value)]
                return False if False in [m for m in members if m is False] else [
                    m for m in members if m is not True] or True
            case "anyOf" | "oneOf":
                members = [self.schema(member, (*path, key, str(i))) for i, member in enumerate(value)]
                if key == "anyOf" and any(m is True for m in members):
                    return True
                return [m for m in members if m is not False] or False
            case "if":
                return self._conditional(given, path)
            case _:
                return None

    def _referred(self, ref: str) -> str:
        (target,) = self._references.of({"$ref": ref})
        return "#" if target == () else f"#/$defs/{self._names.setdefault(target, str(len(self._names)))}"

    def _conditional(self, given: Mapping[str, Any], path: Path) -> Any:
        branches = [self.schema(given.get(key, True), (*path, key)) for key in ("then", "else")]
        if branches == [True, True]:
            return True
        condition = self.schema(given["if"], (*path, "if"))
        if not isinstance(condition, bool):
            raise RequestError("the keyword 'if' is not supported")
        return branches[0] if condition else branches[1]


def _all_types() -> set[str]:
    return {kind for kind in TYPES if kind != "integer"}


def _as_schema(key: str, value: Any) -> Schema:
    if key == "if":
        assert isinstance(value, dict)
        return value
    if key == "const":
        return {"const": value[0]}
    if key == "oneOf" and len(value) == 1:
        return {"allOf": value}
    return {"$ref" if key.endswith("Ref") else key: value}


def _merged(schemas: list[Schema], more: list[Schema]) -> Schema | bool:
    """Returns one schema that is equivalent to all of them. Only one of `schemas` has keywords of names and items;
    `more` stay separate, because additional properties depend on the siblings."""
    made: Schema = {}
    rest: list[Schema] = []
    for schema in schemas:
        if schema.keys().isdisjoint(made):
            made |= schema
        else:
            rest.append(schema)
    rest += more
    if rest:
        made["allOf"] = [*made.get("allOf", ()), *rest]
    return made or True


def _literal(value: object, kinds: list[str]) -> list[Any]:
    """Returns a list with the value in a form that the library reads correctly; an empty list if its type is not in
    `kinds`."""
    kind = type_of(value)
    if kind not in kinds and not (kind == "integer" and "number" in kinds):
        return []
    return [_plain(value)]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    return [_plain(member) for member in value] if isinstance(value, list) else value


def type_of(value: object) -> str:
    """Returns the type of a JSON value; `integer` for each number without a fraction."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
