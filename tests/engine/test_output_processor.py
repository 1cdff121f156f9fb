"""What an answer's text holds at its end, and what its chunks carry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drut import LLM, SamplingParams
from drut.constrain import Constraint, ReasoningSpec
from drut.errors import RequestError
from drut.model.tokenizer import Detokenizer
from tests.engine.models import write_bytes_model

PARAMS = {"max_tokens": 20, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("answer"))


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1) as made:
        yield made


def test_what_ended_it_is_told_and_kept_on_demand(llm: LLM) -> None:
    free = llm.generate("hello", SamplingParams(**PARAMS))[0].text
    stop, token = free[5:8], ord(free[5])
    for field, value, reason, at, length in (
        ("stop", [stop], stop, free.index(stop), 3), ("stop_token_ids", [token], token, free.index(free[5]), 1),
    ):
        without = llm.generate("hello", SamplingParams(**PARAMS, **{field: value}))[0]
        kept = llm.generate("hello", SamplingParams(**PARAMS, **{field: value}, include_stop_str_in_output=True))[0]
        assert (without.text, kept.text) == (free[:at], free[: at + length])
        assert without.stop_reason == kept.stop_reason == reason
        assert without.token_ids == kept.token_ids
    assert llm.generate("hello", SamplingParams(**PARAMS))[0].stop_reason is None


@pytest.mark.parametrize("stop", [(), ("\u20ac!",)])
def test_chunks_with_logprobs_carry_the_length_of_each_tokens_text(llm: LLM, stop: tuple[str, ...]) -> None:
    """As of a detokenizer that gets the same tokens one by one: of a character of three bytes the last one counts."""
    words = Constraint.regex("a\u20ac\u20ac!b")
    params = SamplingParams(max_tokens=20, constraint=words, stop=stop, logprobs=0, temperature=0)
    chunks = list(llm.stream("hello", params))
    ids = [token for chunk in chunks for token in chunk.token_ids]
    lengths = [length for chunk in chunks for length in chunk.text_lengths or ()]
    twin = Detokenizer(llm.tokenizer) if llm.tokenizer else None
    assert twin is not None
    assert lengths == [len(twin.push((token,))) for token in ids]
    assert lengths[:8] == [1, 0, 0, 1, 0, 0, 1, 1]
    assert "".join(chunk.text for chunk in chunks) == ("a\u20ac" if stop else "a\u20ac\u20ac!b")
    assert all(chunk.text_lengths is None for chunk in llm.stream("hello", SamplingParams(max_tokens=2, temperature=0)))


def test_what_a_stop_string_held_back_comes_before_a_further_thought(llm: LLM) -> None:
    free = llm.generate("hello", SamplingParams(**PARAMS))[0].text
    reasoning = ReasoningSpec(free[6:8], "\0\0", begun=None)
    held = llm.generate("hello", SamplingParams(**PARAMS, reasoning=reasoning, stop=[free[5:7] + "\0"]))[0]
    assert (held.text, held.reasoning_tokens) == (free, len(free) - 7)


def test_special_tokens_are_left_out_of_the_text_on_demand_alone(llm: LLM) -> None:
    force = {"logit_bias": {257: 100.0}, "max_tokens": 3, "temperature": 0}
    ended = llm.generate("hello", SamplingParams(**force))[0]
    assert (ended.text, ended.finish_reason, ended.stop_reason) == ("", "stop", None)
    both = {"skip_special_tokens": False, "include_stop_str_in_output": True}
    assert llm.generate("hello", SamplingParams(**force, **both))[0].text == "<eos>"
    assert llm.generate("hello", SamplingParams(**force, skip_special_tokens=False))[0].text == ""
    shown = llm.generate("hello", SamplingParams(**force, ignore_eos=True, skip_special_tokens=False))[0]
    assert shown.text == "<eos><eos><eos>"


@pytest.mark.parametrize("n", [1, 3])
def test_chunks_carry_the_logprobs_of_their_tokens(llm: LLM, n: int) -> None:
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=4, logprobs=2, prompt_logprobs=1, n=n)
    whole = llm.generate("hello", params)
    seen: dict[int, list[object]] = {i: [] for i in range(n)}
    prompts = []
    for chunk in llm.stream("hello", params):
        assert len(chunk.logprobs or ()) == len(chunk.token_ids)
        seen[chunk.index] += chunk.logprobs or []
        if chunk.prompt_logprobs is not None:
            prompts.append((chunk.index, chunk.prompt_logprobs))
            assert chunk.token_ids
    assert [seen[i] for i in range(n)] == [c.logprobs for c in whole]
    assert prompts == [(0, whole[0].prompt_logprobs)]


def test_max_model_len_shortens_the_room(path: Path) -> None:
    with LLM(path, threads=1, max_model_len=50) as short:
        assert short.room == 50
        most = SamplingParams(max_tokens=99, ignore_eos=True, temperature=0)
        assert len(short.generate("x" * 40, most)[0].token_ids) == 10
        with pytest.raises(RequestError, match="the context of 50"):
            short.generate("x" * 50)
    with pytest.raises(RequestError, match="max_model_len 161 is more than the model's context of 160"):
        LLM(path, threads=1, max_model_len=161)
