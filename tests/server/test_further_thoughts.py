"""Thoughts behind the first one, and marks without one: never content, and never beyond the budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import tiny
from tests.server.rig import Running, serving
from tests.server.test_reasoning import CLOSING, FORMAT, THINKER, streamed, whole

OPENS, CLOSES = tiny.VOCAB, tiny.VOCAB + 1  # ids of the marks


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A model whose marks are tokens."""
    path: Path = tmp_path_factory.mktemp("marks") / "marks.gguf"
    path.write_bytes(tiny.model("<think>", "</think>", tokenizer__chat_template=THINKER))
    with serving(path, engine={"grammar_timeout_s": 60}) as running:
        yield running


OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize("fields", [{}, OFF])
def test_a_further_thought_has_what_is_left_of_the_budget(thinker: Running, fields: dict[str, Any]) -> None:
    for bias in (100, 3):
        ask = {"max_tokens": 60, "ignore_eos": True, "thinking_budget": 5, "seed": 4,
               "logit_bias": {str(OPENS): bias}, **fields}
        thought, content, counted = whole(thinker, **ask)
        assert streamed(thinker, **ask) == (thought, content, counted)
        assert "<think>" not in content
        assert "</think>" not in content
    ids = thinker.chat("hi", return_token_ids=True, **ask | {"logit_bias": {str(OPENS): 100}}).json["choices"][0][
        "token_ids"]
    closing = [ord("\n"), CLOSES, ord("\n"), ord("\n")]
    first = [OPENS] * (5 + (fields == OFF))
    assert ids == [*first, *closing, *([OPENS, *closing] * 20)][:60]


@pytest.mark.parametrize("fields", [{}, OFF, {"thinking_budget": 3}, {"n": 2, "temperature": 1}])
def test_a_closing_mark_alone_is_never_content(thinker: Running, fields: dict[str, Any]) -> None:
    for bias in (100, 4):
        reply = thinker.chat("hi", max_tokens=30, ignore_eos=True, logit_bias={str(CLOSES): bias}, **fields)
        for choice in reply.json["choices"]:
            assert "</think>" not in choice["message"]["content"]
    message = thinker.chat("hi", max_tokens=6, logit_bias={str(CLOSES): 100}).json["choices"][0]["message"]
    assert (message["content"], message.get("reasoning_content")) == ("", None)


def test_without_a_budget_thoughts_come_as_often_as_the_model_likes(thinker: Running) -> None:
    ask = {"max_tokens": 100, "ignore_eos": True, "temperature": 1, "seed": 3,
           "logit_bias": {str(OPENS): 6, str(CLOSES): 6}}
    thought, content, counted = whole(thinker, **ask)
    assert streamed(thinker, **ask) == (thought, content, counted)
    assert thought
    assert content
    assert "think>" not in content
    ids = thinker.chat("hi", return_token_ids=True, **ask).json["choices"][0]["token_ids"]
    thinks, tokens = True, 0
    for token in ids:
        tokens += thinks or token == OPENS
        thinks = token != CLOSES if thinks else token == OPENS
    assert ids.count(CLOSES) > 2
    assert counted == tokens


def test_stop_strings_count_between_thoughts(thinker: Running) -> None:
    ask = {"max_tokens": 100, "ignore_eos": True, "temperature": 1, "seed": 3,
           "logit_bias": {str(OPENS): 6, str(CLOSES): 6}}
    _, content, _ = whole(thinker, **ask)
    stop = content[2:4]
    stopped = thinker.chat("hi", **ask, stop=[stop]).json["choices"][0]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", stop)
    assert stopped["message"]["content"] == content[: content.index(stop)]


@pytest.mark.parametrize("fields", [{"thinking_budget": 10}, {"thinking_budget": 0}, OFF])
def test_json_behind_a_thought_is_json_and_none_of_the_thought(thinker: Running, fields: dict[str, Any]) -> None:
    for bias in ({}, {str(OPENS): 5, str(CLOSES): 5}):
        ask = {"max_tokens": 80, "temperature": 1, "seed": 5, "response_format": FORMAT, "logit_bias": bias, **fields}
        thought, content, counted = whole(thinker, **ask) if fields != OFF else off(thinker, **ask)
        assert 0 <= json.loads(content)["a"] <= 99
        assert content not in thought
        assert counted <= fields.get("thinking_budget", 0) + len(CLOSING) if fields != OFF else counted == 0
        deltas = [c["choices"][0]["delta"] for c in thinker.chat("hi", stream=True, **ask).events[:-1]]
        assert "".join(d.get("content", "") for d in deltas) == content


def off(running: Running, **fields: Any) -> tuple[str, str, int]:
    message = running.chat("hi", **fields).json["choices"][0]["message"]
    return message.get("reasoning_content") or "", message["content"], 0
