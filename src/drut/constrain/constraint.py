"""What an answer must look like: plain data, checked where it is made, compiled elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from drut.constrain import lark, schema
from drut.constrain.lark import Tag
from drut.constrain.limits import MOST_BYTES, check_text
from drut.errors import RequestError

Schema = Mapping[str, Any] | bool | str  # a mapping, or JSON text
MOST_MARKER = 32  # tokens that begin or end a thought
MOST_THOUGHT = 1 << 30


@dataclass(frozen=True)
class Thought:
    """What may come before the part that is constrained: free tokens up to `end`.

    With `begin`, an answer that does not start by it has no thought. `within`: after so many tokens of thought those of
    `end` are forced. Ids that end an answer cannot come inside. RequestError for a marker that is none.
    """

    end: tuple[int, ...]
    begin: tuple[int, ...] = ()
    within: int | None = None

    def __post_init__(self) -> None:
        for field in ("end", "begin"):
            ids = tuple(getattr(self, field))
            if len(ids) > MOST_MARKER or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in ids):
                raise RequestError(f"a thought's {field} must be at most {MOST_MARKER} token ids")
            object.__setattr__(self, field, ids)
        if not self.end:
            raise RequestError("a thought must have an end")
        if self.within is not None and not 0 <= self.within <= MOST_THOUGHT:
            raise RequestError(f"a thought's tokens must be from 0 to {MOST_THOUGHT}, not {self.within}")


@dataclass(frozen=True)
class Constraint:
    """Made by the functions below, which raise RequestError naming what is at fault."""

    kind: Literal["json_schema", "regex", "lark", "free"]
    source: str = ""  # the schema, the pattern or the grammar, checked
    thought: Thought | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("json_schema", "regex", "lark", "free"):
            raise RequestError(f"a constraint of kind {str(self.kind)[:40]!r} is not known")
        if self.thought is not None and not isinstance(self.thought, Thought):
            raise RequestError("a constraint's thought must be a Thought")

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
    def structural_tags(cls, tags: Sequence[tuple[str, Schema, str]], triggers: Sequence[str] = (), *,
                        required: bool = False, most: int | None = None) -> Constraint:
        """Tags (begin, schema of what is inside, end). Each of `triggers` in free text opens a tag that begins with it.

        With `required` there is no free text, and at least one tag; `most`: tags at most.
        """
        made = [Tag(begin, schema.prepared(inside, f"tag {begin[:40]!r}"), end) for begin, inside, end in tags]
        source = lark.of_tags(made, triggers, required=required, most=most)
        check_text("structural_tag", source, MOST_BYTES)
        return cls("lark", source)

    @classmethod
    def free(cls) -> Constraint:
        """No constraint: for what `after` alone asks."""
        return cls("free")

    def after(self, end: Sequence[int], *, begin: Sequence[int] = (), within: int | None = None) -> Constraint:
        """The same, for what follows a thought (see Thought)."""
        return replace(self, thought=Thought(tuple(end), tuple(begin), within))
