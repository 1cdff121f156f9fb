"""Constraints on outputs: plain data, checked when they are made and compiled elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drut.constrain import lark, schema
from drut.constrain.lark import Tag
from drut.constrain.limits import MAX_BYTES, MAX_COMPOSED, check_text
from drut.errors import RequestError

Schema = Mapping[str, Any] | bool | str  # a mapping, or JSON text


@dataclass(frozen=True)
class Constraint:
    """A checked constraint, made by the functions below, which raise RequestError with the part at fault."""

    kind: Literal["json_schema", "regex", "lark"]
    source: str = ""  # the checked schema, pattern or grammar

    def __post_init__(self) -> None:
        if self.kind not in ("json_schema", "regex", "lark"):
            raise RequestError(f"the kind of constraint {str(self.kind)[:40]!r} is not known")

    @classmethod
    def json_schema(cls, schema_: Schema) -> Constraint:
        """Constrains to a JSON value that fits the schema; properties are in the schema's order."""
        return cls("json_schema", schema.prepared(schema_))

    @classmethod
    def json_object(cls) -> Constraint:
        """Constrains to any JSON object."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def regex(cls, pattern: str) -> Constraint:
        """Constrains to a text that the whole pattern matches."""
        lark.check_regex(pattern)
        return cls("regex", pattern)

    @classmethod
    def choice(cls, choices: Sequence[str]) -> Constraint:
        """Constrains to one of these texts."""
        source = lark.of_choices(choices)
        check_text("choice", source, MAX_BYTES)
        return cls("lark", source)

    @classmethod
    def lark(cls, grammar: str) -> Constraint:
        """Constrains to a Lark grammar with rule `start`, in which `%json {...}` is a schema; or to EBNF with
        `root ::= ...`."""
        return cls("lark", lark.of_grammar(grammar))

    @classmethod
    def composed(cls, grammar: str) -> Constraint:
        """Constrains to a Lark grammar made by Drut, in which each schema is the source of a constraint."""
        check_text("grammar", grammar, MAX_COMPOSED)
        return cls("lark", grammar)

    def as_rule(self, name: str) -> str:
        """Returns the constraint as rule `name` of a larger Lark grammar."""
        match self.kind:
            case "json_schema":
                return f"{name}: %json {self.source}"
            case "regex":
                return f"{name}: %lark {{\nstart: {lark.pattern(self.source)}\n}}"
        return f"{name}: %lark {{\n{self.source}\n}}"

    @classmethod
    def structural_tags(cls, tags: Sequence[tuple[str, Schema, str]], triggers: Sequence[str] = (), *,
                        required: bool = False, most: int | None = None) -> Constraint:
        """Constrains to free text with tags (begin, schema of the contents, end). Each of `triggers` in the text opens
        a tag that begins with it.

        With `required` there is no free text and at least one tag; `most`: maximum of tags.
        """
        made = [Tag(begin, schema.prepared(inside, f"tag {begin[:40]!r}"), end) for begin, inside, end in tags]
        source = lark.of_tags(made, triggers, required=required, most=most)
        check_text("structural_tag", source, MAX_COMPOSED)
        return cls("lark", source)
