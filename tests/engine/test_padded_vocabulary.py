"""A model may have more rows than its tokenizer has tokens: a row without a token may be drawn, and is no text."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from drut import LLM, SamplingParams
from drut.constrain.constraint import Constraint
from tests.golden.weights import config, write_checkpoint
from tests.model.convert.test_convert import tokenizer

NAME, PADDING = "qwen3_moe", 40
ROWS = config(NAME)["vocab_size"]
SPARE = ROWS - 5  # a row without a token


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = write_checkpoint(NAME, tmp_path_factory.mktemp("padded") / NAME)
    tokenizer(ROWS - PADDING).save(str(folder / "tokenizer.json"))
    with LLM(folder, threads=1) as opened:
        yield opened


def test_a_row_without_a_token_is_no_text(llm: LLM) -> None:
    assert llm.tokenizer is not None
    assert llm.tokenizer.vocab_size == ROWS - PADDING
    [answer] = llm.generate(["abc"], SamplingParams(max_tokens=4, temperature=0.0, logit_bias={SPARE: 100.0}))
    assert (answer.text, list(answer.token_ids)) == ("", [SPARE] * 4)


def test_it_may_not_come_in_an_answer_with_a_form(llm: LLM) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"],
              "additionalProperties": False}
    params = SamplingParams(max_tokens=60, temperature=0.0, logit_bias={SPARE: 100.0},
                            constraint=Constraint.json_schema(schema))
    [answer] = llm.generate(["abc"], params)
    assert SPARE not in answer.token_ids
    assert json.loads(answer.text).keys() == {"a"}
