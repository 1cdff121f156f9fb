"""Answers that must fit, over a SentencePiece vocabulary: spaces in pieces, and bytes for what is no piece."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from drut.constrain import Constraint
from drut.model.tokenizer import from_gguf
from tests.constrain.walking import Walker, at_random
from tests.model.sentencepiece import metadata

SCHEMA = Constraint.json_schema({
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "sizes": {
        "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "maxItems": 3}},
    "required": ["name", "sizes"], "additionalProperties": False})


@pytest.fixture(scope="module")
def spaced() -> Iterator[Walker]:
    tokenizer = from_gguf(metadata(), "m.gguf")
    walker = Walker(tokenizer, tokenizer.vocab_size)
    yield walker
    walker.grammars.close()


@pytest.mark.parametrize("seed", range(30))
def test_every_walk_is_a_value_of_the_schema(spaced: Walker, seed: int) -> None:
    walk = spaced.walk(SCHEMA, at_random(seed, spaced.eos))
    value = json.loads(b"".join(spaced.tokenizer.token_bytes(i) for i in walk.ids if i not in spaced.eos))
    assert walk.over
    assert set(value) == {"name", "sizes"}
    assert all(0 <= size <= 999 for size in value["sizes"])


@pytest.mark.parametrize("text", ['{"name": "नमस्ते", "sizes": [1, 22]}', '{"name":"🦙 a","sizes":[]}',
                                  '{"name":"x  y","sizes":[7]}'])
def test_an_answer_is_followed_piece_by_piece(spaced: Walker, text: str) -> None:
    guide = spaced.guide(SCHEMA)
    for token in spaced.tokenizer.encode_more(text, parse_special=False):
        assert spaced.allows(guide, token)
        guide.advance(token)
    assert guide.over or spaced.allows(guide, min(spaced.eos))


def test_what_is_forced_is_spelled_without_a_space_in_front(spaced: Walker) -> None:
    guide = spaced.guide(Constraint.choice(["The quick brown fox", "The quick brown hat"]))
    ids = guide.forced(0)
    forced = b"".join(map(spaced.tokenizer.token_bytes, ids))
    assert forced
    assert b"The quick brown ".startswith(forced)
