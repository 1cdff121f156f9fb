"""Constraints on the output: OpenAI's `response_format` and vLLM's `structured_outputs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from drut.constrain import Constraint
from drut.errors import RequestError
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.protocol.forms import form_of, unknown_fields

Schema = Annotated[dict[str, Any], Meta(description="a JSON schema")] | bool


class JsonSchema(msgspec.Struct, kw_only=True):
    """A named JSON schema. `strict` has no effect: the output always matches the schema."""

    name: Annotated[str, Meta(min_length=1, max_length=64)] = "response"
    description: str | None = None
    schema: Schema | None = None
    strict: bool | None = None


class Structure(msgspec.Struct):
    """A tag: its begin mark, the schema of its content, and its end mark."""

    begin: str
    end: str
    schema: Schema = True


class StructuralTag(msgspec.Struct, kw_only=True):
    """Free text that contains tags. A trigger is the beginning of one or more begin marks."""

    type: Literal["structural_tag"] = "structural_tag"
    structures: Annotated[list[Structure], Meta(min_length=1, max_length=512)]
    triggers: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=512)]


class ResponseFormat(msgspec.Struct, kw_only=True):
    """OpenAI's format. `schema`: a schema in the place that some clients use, also with `json_object`."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None
    schema: Schema | None = None
    structures: Annotated[list[Structure], Meta(max_length=512)] | None = None
    triggers: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=512)] | None = None


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """vLLM's constraints: exactly one field is set. `json` and `structural_tag` may be JSON in a string."""

    json: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: Annotated[str, Meta(description="Lark from a rule `start`, or EBNF from `root ::= ...`")] | None = None
    json_object: bool | None = None
    structural_tag: StructuralTag | str | None = None


class RequestedFormat(NamedTuple):
    """A constraint and the path of its field. `schemas`: paths and schemas that the constraint was made from."""

    constraint: Constraint
    path: str
    schemas: tuple[tuple[str, Mapping[str, Any]], ...] = ()


def constraint_of(response_format: ResponseFormat | None, outputs: StructuredOutputs | None) -> RequestedFormat | None:
    """Returns the constraint of a request, or None. ApiError 400 names the path and the keyword."""
    asked = _of_format(response_format) if response_format is not None else None
    if outputs is None:
        return asked
    if asked is not None:
        raise ApiError(400, "response_format and structured_outputs cannot be combined", param="structured_outputs")
    return _of_outputs(outputs)


def may_contain_calls(response_format: ResponseFormat | None, outputs: StructuredOutputs | None) -> bool:
    """Returns whether text that matches the constraint may contain tool calls: tags in free text, a choice, a
    grammar."""
    if response_format is not None and response_format.type == "structural_tag":
        return True
    return outputs is not None and any(x is not None for x in (outputs.structural_tag, outputs.choice, outputs.grammar))


def _of_format(given: ResponseFormat) -> RequestedFormat | None:
    """Returns the constraint of a `response_format`. ApiError for a field that its type does not use."""
    path, schema = _schema_of(given)
    for name in ("structures", "triggers"):
        if getattr(given, name) and given.type != "structural_tag":
            raise _needs(f"response_format.{name}", "structural_tag")
    if schema is not None and given.type not in ("json_object", "json_schema"):
        raise _needs(path, "json_schema")
    match given.type:
        case "text":
            return None
        case "json_schema" | "json_object" if schema is not None:
            return _asked(path, lambda: Constraint.json_schema(schema))
        case "json_schema":
            raise _missing(path)
        case "json_object":
            return RequestedFormat(Constraint.json_object(), "response_format")
    if not given.structures or not given.triggers:
        raise _missing("response_format." + ("triggers" if given.structures else "structures"))
    tags = StructuralTag(structures=given.structures, triggers=given.triggers)
    return _asked("response_format", lambda: _tags(tags))


def _schema_of(given: ResponseFormat) -> tuple[str, Schema | None]:
    """Returns the path of the schema and the schema. ApiError for two that differ."""
    inner = given.json_schema.schema if given.json_schema is not None else None
    if inner is None and given.schema is not None:
        return "response_format.schema", given.schema
    if inner is not None and given.schema is not None and inner != given.schema:
        raise ApiError(400, "response_format.schema and response_format.json_schema.schema differ",
                       param="response_format.schema")
    return "response_format.json_schema.schema", inner


def _of_outputs(given: StructuredOutputs) -> RequestedFormat | None:
    asked = [name for name in given.__struct_fields__ if getattr(given, name) is not None]
    if len(asked) > 1:
        raise ApiError(400, f"structured_outputs: {asked[0]} and {asked[1]} cannot be combined",
                       param="structured_outputs")
    if not asked or given.json_object is False:  # false: no constraint
        return None
    (name,) = asked
    value = getattr(given, name)
    makers: Mapping[str, Callable[[], Constraint]] = {
        "json": lambda: Constraint.json_schema(value), "regex": lambda: Constraint.regex(value),
        "choice": lambda: Constraint.choice(value), "grammar": lambda: Constraint.lark(value),
        "structural_tag": lambda: _tags(value), "json_object": Constraint.json_object}
    return _asked(f"structured_outputs.{name}", makers[name])


def _asked(path: str, make: Callable[[], Constraint]) -> RequestedFormat:
    """Runs `make`. ApiError names the path."""
    try:
        return RequestedFormat(make(), path)
    except RequestError as error:
        raise ApiError(400, f"{path}: {error}", param=path) from None


def _tags(given: StructuralTag | str) -> Constraint:
    tag = _read(given) if isinstance(given, str) else given
    return Constraint.structural_tags([(inner.begin, inner.schema, inner.end) for inner in tag.structures],
                                      tag.triggers)


def _read(text: str) -> StructuralTag:
    """Reads a tag from JSON in a string. RequestError for a field that does not fit or is unknown."""
    try:
        given = msgspec.json.decode(text)
        tag = msgspec.convert(given, StructuralTag)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(str(error)) from None
    if (unknown := next(unknown_fields(given, form_of(StructuralTag)), None)) is not None:
        raise RequestError(f"unknown field {unknown.path!r}")
    return tag


def _needs(path: str, kind: str) -> ApiError:
    return ApiError(400, f"{path} needs response_format.type {kind}", param=path)


def _missing(path: str) -> ApiError:
    return ApiError(400, f"{path} is missing", param=path)
