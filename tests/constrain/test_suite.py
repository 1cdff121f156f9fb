"""Nothing that a schema forbids is accepted, all that is made fits, what is not supported is refused by name."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from drut.constrain import Constraint
from drut.constrain.schema import parts
from drut.errors import RequestError
from tests.constrain import suite
from tests.constrain.walking import Walker, at_random

# Not asked for: what the name of each refused schema's fault may be, beside a keyword in it.
OTHER_FAULTS = ("false", "incompatible types", "digits")


@pytest.fixture(scope="module")
def verdicts(walker: Walker) -> dict[str, suite.Verdict]:
    return {name: suite.judge(walker, name) for name in suite.SUITE}


def test_nothing_wrong_is_accepted(verdicts: dict[str, suite.Verdict]) -> None:
    assert [line for verdict in verdicts.values() for line in verdict.wrong] == []
    invalid = sum(verdict.counts["invalid refused"] for verdict in verdicts.values())
    assert invalid > 300, "or nothing was tried"


def test_most_of_what_is_right_is_accepted(verdicts: dict[str, suite.Verdict]) -> None:
    accepted, refused = (sum(v.counts[f"valid {how}"] for v in verdicts.values()) for how in ("accepted", "refused"))
    assert accepted > 8 * refused


def test_a_refusal_names_what_is_at_fault(verdicts: dict[str, suite.Verdict]) -> None:
    for name, verdict in verdicts.items():
        for schema, message in verdict.refused:
            words = {key for _, part in parts(schema) if isinstance(part, dict) for key in part}
            assert any(word in message for word in (*words, *OTHER_FAULTS)), (name, message)


def test_the_docs_show_what_comes_out(verdicts: dict[str, suite.Verdict]) -> None:
    shown = suite.DOCS.read_text().partition(suite.BEGIN)[2].partition(suite.END)[0]
    assert shown == suite.table(verdicts), "python -m tests.constrain.suite writes it"


def test_what_is_made_fits(walker: Walker, verdicts: dict[str, suite.Verdict]) -> None:
    """Walks at random: short answers are whole and valid. A walk through a string without end is given up."""
    made = 0
    for verdict in verdicts.values():
        for i, schema in enumerate(verdict.taken):
            text = made_of(walker, schema, seed=i)
            if text is None:
                continue
            made += 1
            check(schema, json.loads(text))
    assert made > 150


def made_of(walker: Walker, schema: Any, seed: int) -> str | None:
    """An instance, or None where none was done after many tokens."""
    try:
        walk = walker.walk(Constraint.json_schema(schema), ascii_only(at_random(seed, walker.eos)), most=120)
    except RequestError:
        return None
    return walk.text if walk.over else None


def ascii_only(choose: Any) -> Any:
    """Few bytes continue a string, including its end, so that it ends soon."""
    few, closing = frozenset(b'"{}[]:,.-0123456789 truefalsn'), frozenset(b'"}]')

    def chosen(allowed: list[int]) -> int:
        wanted = [i for i in allowed if i in few or i > 255]
        ends = [i for i in wanted if i in closing]
        return choose(ends if ends and len(allowed) > 20 else wanted or allowed)

    return chosen


def check(schema: Any, value: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    errors = [error.message for error in validator.iter_errors(value)]
    assert errors == [], (schema, value)
