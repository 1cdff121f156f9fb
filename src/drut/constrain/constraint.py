"""What an answer must look like: plain data, checked where it is made, compiled elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drut.constrain import lark, schema
from drut.constrain.lark import Tag
from drut.constrain.limits import MOST_BYTES, MOST_COMPOSED, check_text
from drut.errors import RequestError

Schema = Mapping[str, Any] | bool | str  # a mapping, or JSON text


@dataclass(frozen=True)
class Constraint:
    """Made by the functions below, which raise RequestError naming what is at fault."""

    kind: Literal["json_schema", "regex", "lark"]
    source: str = ""  # the schema, the pattern or the grammar, checked

    def __post_init__(self) -> None:
        if self.kind not in ("json_schema", "regex", "lark"):
            raise RequestError(f"a constraint of kind {str(self.kind)[:40]!r} is not known")

    @classmethod
    def json_schema(cls, schema_: Schema) -> Constraint:
        """A JSON value that fits the schema; properties come in the schema's order."""
        return cls("json_schema", schema.prepared(schema_))

    @classmethod
    def json_object(cls) -> Constraint:
        """Any JSON object."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def regex(cls, pattern: str) -> Constraint:
        """A text that the pattern matches as a whole."""
        lark.check_regex(pattern)
        return cls("regex", pattern)

    @classmethod
    def choice(cls, choices: Sequence[str]) -> Constraint:
        """One of these texts."""
        source = lark.of_choices(choices)
        check_text("choice", source, MOST_BYTES)
        return cls("lark", source)

    @classmethod
    def lark(cls, grammar: str) -> Constraint:
        """A Lark grammar from rule `start`, in which `%json {...}` stands for a schema; or EBNF from `root ::= ...`."""
        return cls("lark", lark.of_grammar(grammar))

    @classmethod
    def composed(cls, grammar: str) -> Constraint:
        """A Lark grammar that this system made, in which each schema is the source of a constraint."""
        check_text("grammar", grammar, MOST_COMPOSED)
        return cls("lark", grammar)

    def as_rule(self, name: str) -> str:
        """The same as rule `name` of a Lark grammar that has others."""
        match self.kind:
            case "json_schema":
                return f"{name}: %json {self.source}"
            case "regex":
                return f"{name}: %lark {{\nstart: {lark.pattern(self.source)}\n}}"
        return f"{name}: %lark {{\n{self.source}\n}}"

    @classmethod
    def structural_tags(cls, tags: Sequence[tuple[str, Schema, str]], triggers: Sequence[str] = (), *,
                        required: bool = False, most: int | None = None) -> Constraint:
        """Tags (begin, schema of what is inside, end). Each of `triggers` in free text opens a tag that begins with it.

        With `required` there is no free text, and at least one tag; `most`: tags at most.
        """
        made = [Tag(begin, schema.prepared(inside, f"tag {begin[:40]!r}"), end) for begin, inside, end in tags]
        source = lark.of_tags(made, triggers, required=required, most=most)
        check_text("structural_tag", source, MOST_COMPOSED)
        return cls("lark", source)
