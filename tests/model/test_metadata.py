from __future__ import annotations

import math
import time

import pytest

from drut.errors import ModelFileError
from drut.model.weights.metadata import optional, require, require_list

DATA = {
    "int": 3, "float": 0.5, "text": "a", "flag": True, "null": None, "nan": math.nan, "huge": 10**400,
    "words": ["a", "b"], "mixed": ["a", 1], "numbers": [1, 2.5], "object": {},
}  # fmt: skip


def test_values_come_typed():
    assert require(DATA, "int", int, "f") == 3
    assert require(DATA, "text", str, "f") == "a"
    assert require(DATA, "flag", bool, "f") is True
    as_float = require(DATA, "int", float, "f")
    assert (as_float, type(as_float)) == (3.0, float)
    assert require_list(DATA, "words", str, "f") == ["a", "b"]
    assert require_list(DATA, "numbers", float, "f") == [1.0, 2.5]


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        ("gone", int, "key 'gone' is missing"),
        ("null", int, "key 'null' is missing"),
        ("text", int, "key 'text' must be an integer, not a string"),
        ("flag", int, "must be an integer, not true or false"),
        ("float", int, "must be an integer, not 0.5"),
        ("flag", float, "must be a finite number"),
        ("nan", float, "must be a finite number, not nan"),
        ("huge", float, "must be a finite number"),
        ("int", bool, "must be true or false"),
        ("words", str, "must be a string, not a list"),
        ("object", str, "must be a string, not an object"),
    ],
)
def test_wrong_values_are_named(key, kind, words):
    with pytest.raises(ModelFileError) as caught:
        require(DATA, key, kind, "config.json")
    assert str(caught.value).startswith("config.json: ")
    assert words in str(caught.value)


def test_optional_is_required_to_be_of_its_type_if_there():
    assert optional(DATA, "gone", int, "f") is None
    assert optional(DATA, "null", int, "f", 5) == 5
    assert optional(DATA, "int", int, "f", 5) == 3
    with pytest.raises(ModelFileError, match="'text'"):
        optional(DATA, "text", int, "f", 5)


def test_lists_name_the_element():
    with pytest.raises(ModelFileError, match="element 1 of key 'mixed' must be a string"):
        require_list(DATA, "mixed", str, "f")
    with pytest.raises(ModelFileError, match="key 'int' must be a list"):
        require_list(DATA, "int", int, "f")
    with pytest.raises(ModelFileError, match="key 'gone' is missing"):
        require_list(DATA, "gone", int, "f")


def test_a_vocabulary_is_checked_quickly():
    words = {"tokens": [str(i) for i in range(100_000)]}
    start = time.process_time()
    assert len(require_list(words, "tokens", str, "f")) == 100_000
    assert time.process_time() - start < 0.1
