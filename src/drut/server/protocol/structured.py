"""What an answer must look like, in OpenAI's words (`response_format`) and in vLLM's (`structured_outputs`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from drut.constrain import Constraint
from drut.errors import RequestError
from drut.server.protocol.errors import ApiError

Schema = Annotated[dict[str, Any], Meta(description="a JSON schema")] | bool


class JsonSchema(msgspec.Struct, kw_only=True):
    """`strict` changes nothing: an answer always fits the schema."""

    name: Annotated[str, Meta(min_length=1, max_length=64)] = "response"
    description: str | None = None
    schema: Schema | None = None
    strict: bool | None = None


class Structure(msgspec.Struct, forbid_unknown_fields=True):
    """A tag: how it begins, the schema of what is inside, how it ends."""

    begin: str
    end: str
    schema: Schema = True


class StructuralTag(msgspec.Struct, kw_only=True):
    """Free text with tags in it. A trigger is the beginning of one or more of them."""

    type: Literal["structural_tag"] = "structural_tag"
    structures: Annotated[list[Structure], Meta(min_length=1, max_length=512)]
    triggers: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=512)]


class ResponseFormat(msgspec.Struct, kw_only=True):
    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None
    structures: Annotated[list[Structure], Meta(max_length=512)] | None = None
    triggers: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=512)] | None = None


class StructuredOutputs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One of these. `json` and `structural_tag` may be JSON in a string."""

    json: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: Annotated[str, Meta(description="Lark from a rule `start`, or EBNF from `root ::= ...`")] | None = None
    json_object: bool | None = None
    structural_tag: StructuralTag | str | None = None


def constraint_of(response_format: ResponseFormat | None, outputs: StructuredOutputs | None) -> Constraint | None:
    """The constraint they ask for, or None. ApiError 400 names the field and the keyword."""
    asked = _of_format(response_format) if response_format is not None else None
    if outputs is None:
        return asked
    if asked is not None:
        raise ApiError(400, "response_format and structured_outputs cannot be had together", param="structured_outputs")
    return _of_outputs(outputs)


def _of_format(given: ResponseFormat) -> Constraint | None:
    with _Naming("response_format"):
        match given.type:
            case "text":
                return None
            case "json_object":
                return Constraint.json_object()
            case "json_schema":
                if given.json_schema is None or given.json_schema.schema is None:
                    raise RequestError("json_schema.schema is missing")
                return Constraint.json_schema(given.json_schema.schema)
            case _:
                if not given.structures or not given.triggers:
                    raise RequestError("structural_tag needs structures and triggers")
                return _tags(StructuralTag(structures=given.structures, triggers=given.triggers))


def _of_outputs(given: StructuredOutputs) -> Constraint | None:
    asked = [name for name in given.__struct_fields__ if getattr(given, name) is not None]
    if len(asked) > 1:
        raise ApiError(400, f"structured_outputs: {asked[0]} and {asked[1]} cannot be had together",
                       param="structured_outputs")
    with _Naming("structured_outputs"):
        if given.json is not None:
            return Constraint.json_schema(given.json)
        if given.regex is not None:
            return Constraint.regex(given.regex)
        if given.choice is not None:
            return Constraint.choice(given.choice)
        if given.grammar is not None:
            return Constraint.lark(given.grammar)
        if given.structural_tag is not None:
            return _tags(given.structural_tag)
        return Constraint.json_object() if given.json_object else None  # false asks for nothing


def _tags(given: StructuralTag | str) -> Constraint:
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given, type=StructuralTag)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestError(f"structural_tag: {error}") from None
    tags = [(tag.begin, tag.schema, tag.end) for tag in given.structures]
    return Constraint.structural_tags(tags, given.triggers)


class _Naming:
    """Turns what a constraint's maker finds into a 400 that names the field."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, RequestError):
            raise ApiError(400, f"{self._field}: {error}", param=self._field) from None
