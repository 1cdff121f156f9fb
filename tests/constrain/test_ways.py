"""Regular expressions that one text must match: a few compile, and many are refused before the library intersects
them."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

import pytest

from drut.constrain import Constraint, ways
from drut.constrain.patterns import translated
from drut.errors import RequestError
from tests.constrain.walking import Walker

LETTERS, MANY = ascii_lowercase, 20
SECONDS = 2  # of CPU time; without the bound 20 patterns do not end


def pattern(letter: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^.*{letter}.*$"}


def held(name: str, letters: str) -> list[dict[str, Any]]:
    return [{"type": "object", name: {"k": pattern(letter)}} for letter in letters]


def chained(letters: str) -> dict[str, Any]:
    links = {str(i): {**pattern(letter), "$ref": f"#/$defs/{i + 1}"} for i, letter in enumerate(letters)}
    return {"$defs": links | {str(len(letters)): {}}, "$ref": "#/$defs/0"}


# Each applies a pattern for each letter to one string.
MEETINGS: dict[str, Callable[[str], dict[str, Any]]] = {
    "allOf": lambda letters: {"allOf": [*map(pattern, letters)]},
    "nested": lambda letters: {"allOf": [pattern(letters[0]), {"allOf": [*map(pattern, letters[1:])]}]},
    "properties": lambda letters: {"allOf": held("properties", letters)},
    "names": lambda letters: {"allOf": [*held("properties", letters[0]), *held("patternProperties", letters[1:])]},
    "patternProperties": lambda letters: {"allOf": held("patternProperties", letters)},
    "additional": lambda letters: {"allOf": [
        *held("properties", letters[0]), *({"additionalProperties": pattern(letter)} for letter in letters[1:])]},
    "items": lambda letters: {"allOf": [{"type": "array", "items": pattern(letter)} for letter in letters]},
    "prefix": lambda letters: {"allOf": [
        {"type": "array", "prefixItems": [pattern(letters[0])]}, *({"items": pattern(x)} for x in letters[1:])]},
    "$ref": lambda letters: {"$defs": {x: pattern(x) for x in letters},
                             "allOf": [{"$ref": f"#/$defs/{letter}"} for letter in letters]},
    "chain": chained,
    "siblings": lambda letters: {**pattern(letters[0]), "anyOf": [{"allOf": [*map(pattern, letters[1:])]}, False]},
    "enum": lambda letters: {"enum": [LETTERS, "a"], "allOf": [*map(pattern, letters)]},
    "const": lambda letters: {"const": {"k": LETTERS}, "allOf": held("properties", letters)},
    "length": lambda letters: {"minLength": 3, "maxLength": 99, "allOf": [*map(pattern, letters)]},
    "format": lambda letters: {"format": "uri", "allOf": [*map(pattern, letters)]},
    "alternatives": lambda letters: {"allOf": [
        {"anyOf": [pattern(letter), {"type": "string", "pattern": f"^{letter}"}, {"type": "string", "maxLength": 1}]}
        for letter in letters]},
}


@pytest.mark.parametrize("meeting", MEETINGS)
def test_many_patterns_of_one_string_are_refused_at_once(walker: Walker, meeting: str) -> None:
    started = time.process_time()
    with pytest.raises(RequestError, match=r"pattern: \d+ patterns .* at most 8 short ones are allowed, at #"):
        walker.grammars.check(Constraint.json_schema(MEETINGS[meeting](LETTERS[:MANY])))
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize("meeting", MEETINGS)
def test_two_patterns_of_one_string_compile(walker: Walker, meeting: str) -> None:
    walker.grammars.check(Constraint.json_schema(MEETINGS[meeting]("ab")))


def test_the_error_has_the_path_of_the_first_pattern() -> None:
    with pytest.raises(RequestError, match=r"schema: pattern: 9 patterns .*, at #/items/allOf/0/properties/k$"):
        Constraint.json_schema({"items": {"allOf": held("properties", LETTERS[:9])}})


def test_eight_patterns_are_exact_together(walker: Walker) -> None:
    constraint = Constraint.json_schema({"allOf": [{"type": "string", "pattern": f".*{x}.*"} for x in LETTERS[:8]]})
    assert walker.accepts(constraint, '"hgfe dcba"')
    assert not walker.accepts(constraint, '"hgfe dcb"')


def overlapping(count: int, seed: int) -> str:
    """Returns a pattern with about `count` / 2 ways for each letter."""
    rng = random.Random(seed)
    classes = ("".join(rng.sample(LETTERS, 13)) for _ in range(count))
    return "^(" + "|".join(f"[{letters}]{n}" for n, letters in enumerate(classes)) + ")$"


@pytest.mark.parametrize("schema", [
    {"type": "string", "allOf": [{"pattern": overlapping(800, 1)}, {"pattern": overlapping(800, 2)}]},
    {"type": "string", "allOf": [{"pattern": overlapping(60, i)} for i in range(4)]},
    {"type": "object", "patternProperties": {overlapping(1100, 1): {}, overlapping(1100, 2): {}}},
    {"type": "object", "properties": {f"k{i}": {"allOf": [*map(pattern, "abcde")], "maxLength": i} for i in range(99)}},
    {"allOf": [{"type": "object", "properties": {f"k{i}": {"pattern": f"^{i}"}}} for i in range(3000)]},
], ids=["two long", "four", "names", "strings", "members"])
def test_few_but_costly_ones_end_soon(walker: Walker, schema: dict[str, Any]) -> None:
    started = time.process_time()
    with pytest.raises(RequestError):
        walker.grammars.check(Constraint.json_schema(schema))
    assert time.process_time() - started < 2 * SECONDS


USUAL: list[dict[str, Any]] = [
    {"anyOf": [{"type": "object", "properties": {"kind": {"const": x}, "id": pattern(x)}, "required": ["kind"]}
               for x in LETTERS]},
    {"type": "object", "properties": {x: {**pattern(x), "maxLength": 40} for x in LETTERS}},
    {"allOf": [{"type": "object", "properties": {x: pattern(x)}} for x in LETTERS]},
    {"type": "string", "format": "date-time", "pattern": "^2", "allOf": [{"pattern": "Z$"}, {"maxLength": 30}]},
    {"allOf": [{"type": "object", "properties": {"id": pattern("i")}},
               {"anyOf": [{"properties": {"id": pattern(x)}, "required": ["id"]} for x in LETTERS]}]},
    {"type": "object", "patternProperties": {f"^{x}_": pattern(x) for x in LETTERS}, "additionalProperties": False},
]  # fmt: skip


@pytest.mark.parametrize("schema", USUAL, ids=["union", "apart", "members", "format", "narrowed", "names"])
def test_many_patterns_of_different_strings_compile(walker: Walker, schema: dict[str, Any]) -> None:
    walker.grammars.check(Constraint.json_schema(schema))


def joined(parts: Sequence[str]) -> str:
    return "start: A\nA: " + " & ".join(parts)


ANY = r"(.|\n)*"
GRAMMARS: dict[str, Callable[[str], str]] = {
    "and": lambda letters: joined([f"/{ANY}.*{x}{ANY}/" for x in letters]),
    "names": lambda letters: joined([f"B{x.upper()}" for x in letters]) + "".join(
        f"\nB{x.upper()}: /{ANY}.*{x}/ /{ANY}/" for x in letters),
    "chain": lambda letters: "start: A0" + "".join(
        f"\nA{i}: A{i + 1} & /{ANY}.*{x}{ANY}/" for i, x in enumerate(letters)) + f"\nA{len(letters)}: /{ANY}/",
    "times": lambda letters: joined([f"(/{ANY}/ \"{x}\" /{ANY}/){{2,3}}" for x in letters[:20]]),
    "lines": lambda letters: joined([f"/({ANY}|\n).*{x}{ANY}/" for x in letters]),
    "inside": lambda letters: "start: a\na: %lark {\n" + joined([f"/{ANY}.*{x}{ANY}/" for x in letters]) + "\n}",
}


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_many_terminals_that_are_joined_are_refused_at_once(walker: Walker, grammar: str) -> None:
    walker.grammars.check(Constraint.lark(GRAMMARS[grammar]("ab")))
    started = time.process_time()
    with pytest.raises(RequestError, match=r"grammar: the intersection in 'A.*' is too costly"):
        walker.grammars.check(Constraint.lark(GRAMMARS[grammar](LETTERS[:MANY])))
    assert time.process_time() - started < SECONDS


def test_a_terminal_without_some_words_compiles(walker: Walker) -> None:
    words = " | ".join(f'"{x}{y}"' for x in LETTERS for y in "abc")
    constraint = Constraint.lark(f"start: NAME\nNAME: /[a-z_][a-z0-9_]*/ & ~WORD\nWORD: {words}  # & more & more")
    assert walker.accepts(constraint, "abc")
    assert not walker.accepts(constraint, "ab")


def test_terminals_joined_by_negation_end_soon(walker: Walker) -> None:
    started = time.process_time()
    parts = " | ".join(f"~/{ANY}.*{x}{ANY}/" for x in LETTERS[:MANY])
    walker.grammars.check(Constraint.lark(f"start: A\nA: ~({parts})"))
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize("text", ["/" + "[" * 100_000, "/" + r"\p{" * 40_000 + "/", "A & " * 50_000, '"' * 100_001,
                                  "A: B\n" + "".join(f"B{i}: B{i + 1} & B\n" for i in range(3000))])
def test_hostile_texts_are_read_in_time(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(RequestError):
        Constraint.lark(f"start: A\nA: B & {text}")
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize(("source", "count"), [
    ("a", 3), (r"^[ab][ac][ad][a-z]$", 4), ("^(a|a|a|a|b)$", 4), (r"^[\n][\t]\r\x01$", 4), ("^[à]é[ü-ý]ß$", 4),
    (r"^\p{L}a\Wa[]$", 3), ("^x{2,50}$", 3), ("^(ab|a){2,5}$", 10), ("^(?:(?:ab){3}a){2}$", 8),
    (".*a.*", 3), ("^.*a.*$", 3)])
def test_ways_are_the_classes_that_hold_one_character(source: str, count: int) -> None:
    assert ways.of_pattern(translated(source)) == count
