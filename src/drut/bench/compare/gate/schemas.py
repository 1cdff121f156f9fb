"""Structured output for the gate: the requests, and the validation. One type is both the schema and its validator."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from drut.bench.compare.gate.ask import EngineAnswer, Question

MAX_TOKENS = 160  # longer than the longest answer that the schemas allow


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Weather(_Strict):
    """Tests numbers and an enumeration."""

    sky: Literal["clear", "clouds", "rain", "snow"]
    celsius: Annotated[int, Meta(ge=-60, le=60)]
    windy: bool


class Person(_Strict):
    """Tests strings with bounds."""

    name: Annotated[str, Meta(min_length=1, max_length=20)]
    born: Annotated[int, Meta(ge=1000, le=2100)]
    field: Literal["physics", "music", "sport", "politics"]


class Colours(_Strict):
    """Tests a list with bounds."""

    colours: Annotated[list[Literal["red", "green", "blue", "white", "black"]], Meta(min_length=2, max_length=4)]


class GateVerdict(_Strict):
    """Tests nullable fields."""

    spam: bool
    stars: Annotated[int, Meta(ge=1, le=5)] | None


class QualityPrice(_Strict):
    """Tests a pattern."""

    code: Annotated[str, Meta(pattern="^[A-Z]{3}$")]
    units: Annotated[int, Meta(ge=0, le=9999)]


_ASKED: tuple[tuple[type[_Strict], str], ...] = (
    (Weather, "Describe the weather of a winter morning in Oslo as JSON."),
    (Person, "Describe Marie Curie as JSON: her name, the year of her birth, her field."),
    (Colours, "Give the colours of the French flag as JSON."),
    (GateVerdict, "Judge this mail as JSON: 'You have won a million, send us your card number.'"),
    (QualityPrice, "Give the price of a loaf of bread as JSON, with a currency's code."),
)


def questions() -> list[Question]:
    """Returns one request for each type."""
    return [Question(text, MAX_TOKENS, body={"response_format": {"type": "json_schema", "json_schema": {
        "name": kind.__name__.lower(), "strict": True, "schema": schema(kind)}}}) for kind, text in _ASKED]


def schema(kind: type[_Strict]) -> dict[str, Any]:
    """Returns the schema of a type, without references and without the docstrings of this file."""
    (_,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    found = dict(components[kind.__name__])
    found.pop("description", None)
    found.pop("title", None)
    return found


def valid_share(answers: list[EngineAnswer]) -> tuple[float | None, int]:
    """Returns the share of valid answers and their number; None if the engine does not support schemas: it rejects
    every schema, or ignores the field and answers mostly in prose. A truncated answer is not judged, because white
    space may make any answer that long."""
    objects = sum(answer.status == 200 and answer.text.lstrip().startswith("{") for answer in answers)
    judged = [(kind, answer) for (kind, _), answer in zip(_ASKED, answers, strict=True) if answer.finish != "length"]
    if 2 * objects < len(answers) or not judged:
        return None, 0
    return sum(answer.status == 200 and _fits(answer.text, kind) for kind, answer in judged) / len(judged), len(judged)


def _fits(text: str, kind: type[_Strict]) -> bool:
    try:
        msgspec.json.decode(text.encode(), type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
