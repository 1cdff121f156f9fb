from __future__ import annotations

import msgspec

from drut.bench.compare.notes import notes
from drut.bench.compare.schema import Block, Contestant
from drut.bench.compare.settings import settings
from tests.bench.compare.made import block


def _took(name: str, cell: str, ms: float, count: int = 3, number: int = 0, valid: bool = True) -> Block:
    return msgspec.structs.replace(block(number, name, cell, valid), samples={"e2e_ms": [ms] * count})


def _said(*blocks: Block) -> list[str]:
    given = settings({"engines": ["a", "b"], "cells": ["chat@rate=0.5", "chat@1"], "warmup": 3.0})
    return notes(given, [], blocks, "a", "a")


def test_answers_that_are_longer_than_the_warm_up_of_an_open_loop_are_reported() -> None:
    slow = [note for note in _said(_took("a", "chat@rate=0.5", 900.0), _took("b", "chat@rate=0.5", 25e3),
                                   _took("b", "chat@1", 25e3)) if "warm-up" in note]
    assert slow == ["b, chat@rate=0.5: its responses take 25 s, longer than the warm-up, so that its turns begin with "
                    "a lower load than later: its rates are underestimated, its waits too short."]


def test_turns_that_are_too_short_for_a_p99_are_reported() -> None:
    few = "A turn with fewer than 100 responses has no p99 of TTFT, TPOT and E2E: it would be the slowest response."
    assert few in _said(_took("a", "chat@1", 5.0, 99))
    assert few not in _said(_took("a", "chat@1", 5.0, 100), _took("a", "chat@1", 5.0, 2, 1, valid=False))


def test_rounds_of_another_version_are_reported() -> None:
    same = Contestant("a", "mock", "A", "measured", versions={"x": "3"})
    other = msgspec.structs.replace(same, earlier=[{"x": "1"}, {"x": "2"}])
    given = settings({"engines": ["a"], "cells": ["chat@1"]})
    back = msgspec.structs.replace(same, earlier=[{"x": "3"}, {}])
    assert notes(given, [same], [], "a", "a") == notes(given, [back], [], "a", "a") == []
    several = "a: its rounds were measured with several versions: x 1, then x 2, then x 3."
    assert notes(given, [other], [], "a", "a") == [several]
