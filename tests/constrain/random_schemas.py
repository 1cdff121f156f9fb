"""Random schemas of all drafts against `jsonschema`: what is made must be valid, and what is valid must be accepted.

`python -m tests.constrain.random_schemas --count 10000 --seed 1 [--model NAME]`; without a model the vocabulary is the
256 bytes. A schema that is refused must be refused with a keyword and a path.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs

from drut.constrain import Constraint
from drut.errors import RequestError
from tests.constrain.instances import Guesser, spellings
from tests.constrain.schema_maker import URIS, Maker, keywords_of
from tests.constrain.walking import Choose, Walker, at_random, walker_over
from tests.engine.models import write_bytes_model

VALIDATORS = {4: jsonschema.Draft4Validator, 6: jsonschema.Draft6Validator, 7: jsonschema.Draft7Validator,
              2019: jsonschema.Draft201909Validator, 2020: jsonschema.Draft202012Validator}
OTHERS = {URIS[4]: jsonschema_rs.Draft4Validator, URIS[6]: jsonschema_rs.Draft6Validator,
          URIS[7]: jsonschema_rs.Draft7Validator, URIS[2019]: jsonschema_rs.Draft201909Validator,
          URIS[2020]: jsonschema_rs.Draft202012Validator}
WALKS, MAX_TOKENS, GUESSES, INSTANCES = 3, 80, 40, 3
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
EMPTY = re.compile("no value")
WHERE = re.compile(r"at #(/|$)")


@dataclass
class Tally:
    """What came of the schemas so far; `wrong` is a line for each fault."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def judge(walker: Walker, schema: dict[str, Any], draft: int, seed: int, tally: Tally) -> None:
    """Compiles one schema, walks through it, and offers it instances."""
    tally.counts["schemas"] += 1
    validator = VALIDATORS[draft](schema, format_checker=FORMATS)
    try:
        constraint = Constraint.json_schema(schema)
        walker.grammars.check(constraint)
    except RequestError as error:
        return _refused(str(error), validator, seed, tally)
    tally.counts["taken"] += 1
    for i in range(WALKS):
        _walk(walker, constraint, validator, seed * WALKS + i, tally)
    _offer(walker, constraint, validator, seed, tally)


def _refused(message: str, validator: Any, seed: int, tally: Tally) -> None:
    tally.counts["refused"] += 1
    tally.reasons[re.sub(r"[0-9]+|'[^']*'|/.*", "_", message.removeprefix("schema: "))[:60]] += 1
    if not WHERE.search(message):
        tally.wrong.append(f"a refusal without a path: {message}: {json.dumps(validator.schema)}")
    if EMPTY.search(message) and message.endswith("at #") and (found := _instances(validator, seed)):
        tally.wrong.append(f"not empty: {message}: {json.dumps(found[0])}: {json.dumps(validator.schema)}")


def _walk(walker: Walker, constraint: Constraint, validator: Any, seed: int, tally: Tally) -> None:
    choose = at_random(seed, walker.eos)
    try:
        walk = walker.walk(constraint, short(walker, choose, seed), most=MAX_TOKENS)
    except (RequestError, AssertionError) as error:
        tally.wrong.append(f"a walk broke off: {error}: {json.dumps(validator.schema)}")
        return
    if not walk.over:
        tally.counts["walks given up"] += 1
        return
    tally.counts["walks"] += 1
    try:
        faults = _faults(validator, json.loads(walk.text), unsure="")
    except ValueError as error:
        faults = str(error)
    if faults:
        tally.wrong.append(f"made, not valid: {walk.text}: {json.dumps(validator.schema)}: {faults[:80]!r}")


def _faults(validator: Any, value: Any, unsure: str = "unsure") -> str:
    """The first fault of a value; `unsure` where validators differ: `jsonschema` fails on `unevaluatedItems` of 2019-09
    with some `items`, and lets a pattern's `$` match before a line's end."""
    other = OTHERS[validator.META_SCHEMA["$schema" if "$schema" in validator.META_SCHEMA else "id"]]
    try:
        fault = next((error.message for error in validator.iter_errors(value)), "")
        same = other(validator.schema, validate_formats=True).is_valid(value) == (not fault)
    except (TypeError, ValueError, OverflowError):
        same = False
    return fault if same else unsure


def _offer(walker: Walker, constraint: Constraint, validator: Any, seed: int, tally: Tally) -> None:
    for value in _instances(validator, seed):
        tally.counts["instances"] += 1
        if not any(walker.accepts(constraint, text) for text in spellings(value)):
            schema = json.dumps(validator.schema)
            tally.wrong.append(f"valid, not accepted: {json.dumps(value, ensure_ascii=False)}: {schema}")


def _instances(validator: Any, seed: int) -> list[Any]:
    guesser, found = Guesser(random.Random(seed), validator.schema), list[Any]()
    for _ in range(GUESSES):
        value = guesser.guess(validator.schema)
        if len(found) < INSTANCES and value not in found and not _faults(validator, value):
            found.append(value)
    return found


def short(walker: Walker, choose: Choose, seed: int) -> Choose:
    """Most of the time it ends strings, arrays and objects where it may, and takes few characters in strings."""
    dice, (ends, few) = random.Random(seed), _kinds(walker)

    def chosen(allowed: Sequence[int]) -> int:
        if len(allowed) < 20 or dice.random() < 0.1:
            return choose(allowed)
        ending = ends.intersection(allowed) if dice.random() < 0.6 else ()
        return choose(sorted(ending or few.intersection(allowed)) or allowed)

    return chosen


@cache
def _kinds(walker: Walker) -> tuple[frozenset[int], frozenset[int]]:
    """The tokens that begin with what ends a value, and those of few characters that JSON needs."""
    characters = frozenset(b'"{}[]:,.-0123456789 truefalsnbcx\\')
    texts = {i: walker.tokenizer.token_bytes(i) for i in range(walker.vocab) if i not in walker.eos}
    ends = frozenset(i for i, text in texts.items() if text[:1] in (b'"', b"}", b"]"))
    return ends, frozenset(i for i, text in texts.items() if text and characters.issuperset(text))


def random_schemas(count: int, seed: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Drafts in turn."""
    for i in range(count):
        draft = list(URIS)[i % len(URIS)]
        dice = random.Random(f"{seed} {i}")
        yield draft, Maker(dice, draft).root()


def pairs(draft: int, seed: int) -> Iterator[dict[str, Any]]:
    """A schema for each pair of keywords of a draft."""
    keywords = keywords_of(draft)
    for i, one in enumerate(keywords):
        for other in keywords[i + 1 :]:
            dice = random.Random(f"{seed} {one} {other}")
            maker = Maker(dice, draft)
            schema: dict[str, Any] = {}
            for key in (one, other):
                schema[key] = maker.value(key, 1)
            yield maker.whole(schema)


@contextmanager
def walker_of(model: str | None) -> Iterator[Walker]:
    """Over the vocabulary of a model, or over bytes."""
    if model is not None:
        from drut.model.store import resolve

        with walker_over(resolve(model)) as walker:
            yield walker
        return
    with tempfile.TemporaryDirectory() as directory, walker_over(write_bytes_model(Path(directory))) as walker:
        yield walker


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first schema")
    parser.add_argument("--model", help="whose vocabulary; without it, bytes")
    asked = parser.parse_args()
    tally, started = Tally(), time.monotonic()
    with walker_of(asked.model) as walker:
        for i, (draft, schema) in enumerate(random_schemas(asked.count, asked.seed)):
            if i >= asked.first:
                judge(walker, schema, draft, i, tally)
    for line in tally.wrong[:60]:
        print(line)
    print(dict(tally.counts), f"{len(tally.wrong)} wrong, {time.monotonic() - started:.0f} s")
    for reason, times in tally.reasons.most_common(25):
        print(f"{times:6} {reason}")
    return bool(tally.wrong)


if __name__ == "__main__":
    raise SystemExit(main())
