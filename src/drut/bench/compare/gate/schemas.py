"""Structured answers: what is asked for, and whether it came. One type is both the schema and its checker."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from drut.bench.compare.gate.ask import Question, Said

MAX_TOKENS = 160  # more than the longest answer that the schemas allow takes


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Weather(_Strict):
    """Numbers and a choice."""

    sky: Literal["clear", "clouds", "rain", "snow"]
    celsius: Annotated[int, Meta(ge=-60, le=60)]
    windy: bool


class Person(_Strict):
    """Strings with bounds."""

    name: Annotated[str, Meta(min_length=1, max_length=20)]
    born: Annotated[int, Meta(ge=1000, le=2100)]
    field: Literal["physics", "music", "sport", "politics"]


class Colours(_Strict):
    """A list with bounds."""

    colours: Annotated[list[Literal["red", "green", "blue", "white", "black"]], Meta(min_length=2, max_length=4)]


class Verdict(_Strict):
    """What may be null."""

    spam: bool
    stars: Annotated[int, Meta(ge=1, le=5)] | None


class Price(_Strict):
    """A pattern."""

    code: Annotated[str, Meta(pattern="^[A-Z]{3}$")]
    units: Annotated[int, Meta(ge=0, le=9999)]


_ASKED: tuple[tuple[type[_Strict], str], ...] = (
    (Weather, "Describe the weather of a winter morning in Oslo as JSON."),
    (Person, "Describe Marie Curie as JSON: her name, the year of her birth, her field."),
    (Colours, "Give the colours of the French flag as JSON."),
    (Verdict, "Judge this mail as JSON: 'You have won a million, send us your card number.'"),
    (Price, "Give the price of a loaf of bread as JSON, with a currency's code."),
)


def questions() -> list[Question]:
    """One a type."""
    return [Question(text, MAX_TOKENS, body={"response_format": {"type": "json_schema", "json_schema": {
        "name": kind.__name__.lower(), "strict": True, "schema": schema(kind)}}}) for kind, text in _ASKED]


def schema(kind: type[_Strict]) -> dict[str, Any]:
    """Of a type, without references; its doc string is for readers of this file."""
    (_,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    found = dict(components[kind.__name__])
    found.pop("description", None)
    found.pop("title", None)
    return found


def valid_share(answers: list[Said]) -> tuple[float | None, int]:
    """The share of answers that are what was asked for, and of how many; None where the engine does not offer it: it
    refuses every schema, or lets the field lie and answers most in prose. An answer that was cut off at its longest is
    not judged, since white space may make any as long."""
    objects = sum(said.status == 200 and said.text.lstrip().startswith("{") for said in answers)
    judged = [(kind, said) for (kind, _), said in zip(_ASKED, answers, strict=True) if said.finish != "length"]
    if 2 * objects < len(answers) or not judged:
        return None, 0
    return sum(said.status == 200 and _fits(said.text, kind) for kind, said in judged) / len(judged), len(judged)


def _fits(text: str, kind: type[_Strict]) -> bool:
    try:
        msgspec.json.decode(text.encode(), type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
