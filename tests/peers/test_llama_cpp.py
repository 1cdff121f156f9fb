"""The adapter between llama.cpp's server tests and our server, without either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.peers.llama_cpp.table import Table, counts, faults
from tests.peers.llama_cpp.translate import asked

DEFAULTS = {"temperature": 0.8, "seed": 42, "n_predict": 64}
CASES = ["test_a.py::test_one[x]", "test_a.py::test_one[y]", "test_a.py::test_two", "test_b.py::test_three[1]"]


def nothing(path: str, body: Any) -> Any:
    raise AssertionError((path, body))


def test_the_committed_table_has_a_reason_for_each_line() -> None:
    Table.read(Path(__file__).parent / "llama_cpp" / "expected.toml")
    for line in ("differs", "differs: ", "passes", "fails: yes"):
        with pytest.raises(ValueError, match=r"test_a\.py::test_one"):
            Table({"test_a.py": {"test_one": line}})


def test_each_unexpected_outcome_is_a_line() -> None:
    table = Table({"test_a.py": {"test_one": "differs: texts", "test_one[y]": "differs: counts"},
                   "test_b.py": {"*": "not applicable: no such route"}, "test_c.py": {"*": "differs: gone"}})
    as_expected = {CASES[0]: False, CASES[1]: False, CASES[2]: True}
    assert faults(table, CASES, as_expected) == []
    assert table.unused == ["test_c.py::*"]
    assert faults(table, CASES, {**as_expected, CASES[2]: False}) == ["fails: test_a.py::test_two"]
    assert faults(table, CASES, {**as_expected, CASES[1]: True}) == [
        "passes, though listed as differing: test_a.py::test_one[y] (counts)"]
    assert faults(table, CASES, {CASES[0]: False, CASES[2]: True}) == ["did not run: test_a.py::test_one[y]"]
    assert counts(table, CASES) == "1 pass, 2 differ for a stated reason, 1 are not applicable"


def test_a_completion_is_translated_there_and_back() -> None:
    ask = asked("/completion", {"prompt": "a", "n_predict": 3, "n_probs": 2, "cache_prompt": False}, DEFAULTS, nothing)
    assert ask.path == "/v1/completions"
    assert ask.body == {"prompt": "a", "max_tokens": 3, "logprobs": 2, "temperature": 0.8, "seed": 42,
                        "return_token_ids": True, "timings_per_token": True}
    choice = {"index": 0, "text": "b\n", "finish_reason": "length", "stop_reason": None, "token_ids": [1, 2]}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    reply = ask.reply({"model": "m", "choices": [choice], "usage": usage})
    assert reply == {"content": "b\n", "stop": True, "stop_type": "limit", "model": "m", "index": 0, "tokens": [],
                     "truncated": False, "has_new_line": True,
                     "timings": {"prompt_n": 5, "cache_n": 4, "predicted_n": 2}}
    assert ask.reply({"error": {"message": "x"}}) == {"error": {"message": "x"}}


def test_prompts_biases_and_constraints_in_other_words() -> None:
    def post(path: str, body: Any) -> Any:
        assert (path, body) == ("/tokenize", {"prompt": " he ", "add_special_tokens": False})
        return {"tokens": [5, 6]}

    body = {"prompt": {"prompt_string": "a"}, "logit_bias": [[" he ", -100], [7, 1]], "json_schema": {"const": 1}}
    made = asked("/completion", body, DEFAULTS, post).body
    assert made is not None
    assert (made["prompt"], made["max_tokens"]) == ("a", 64)
    assert made["logit_bias"] == {"5": -100, "6": -100, "7": 1}
    assert made["structured_outputs"] == {"json": {"const": 1}}
    chat = asked("/chat/completions", {"messages": [], "grammar": "root ::= x"}, DEFAULTS, nothing).body
    assert chat == {"messages": [], "structured_outputs": {"grammar": "root ::= x"}, "temperature": 0.8, "seed": 42,
                    "max_tokens": 64}


def test_tokens_and_templates_are_translated() -> None:
    ask = asked("/tokenize", {"content": "ab", "with_pieces": True}, DEFAULTS, nothing)
    assert ask.reply({"tokens": [1], "token_strs": ["ab"]}) == {"tokens": [{"id": 1, "piece": "ab"}]}
    assert asked("/detokenize", {"tokens": [1]}, DEFAULTS, nothing).reply({"prompt": "ab"})["content"] == "ab"
    ask = asked("/apply-template", {"messages": [], "tools": None}, DEFAULTS | {"reasoning": "off"},
                lambda path, body: {"prompt": f"{path} {body['tokens']}"})
    assert ask.body == {"messages": [], "chat_template_kwargs": {"enable_thinking": False}}
    assert ask.reply({"tokens": [1, 2]}) == {"prompt": "/detokenize [1, 2]"}
    assert asked("/health", None, {}, nothing).path == "/health"
