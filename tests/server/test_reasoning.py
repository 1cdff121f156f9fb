"""Reasoning over HTTP: separated from content, counted, limited, and before any grammar."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from drut.engine.request.output import Chunk
from drut.server.admission import QueuedRequest
from tests.cli import tiny
from tests.server.rig import Running, serving
from tests.server.scripted import ended, said, scripted

THINKER = """{% for m in messages %}[{{ m.role[0] }}]{{ m.content.split('</think>')[-1] }}
{% endfor %}{% if add_generation_prompt %}[a]{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif %}{% endif %}"""
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"],
          "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
CLOSING = "\n</think>\n\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("thinker") / "thinker.gguf"
    made.write_bytes(tiny.model(tokenizer__chat_template=THINKER))
    return made


@pytest.fixture(scope="module")
def thinker(path: Path) -> Iterator[Running]:
    with serving(path, engine={"grammar_timeout_s": 60}) as running:
        yield running


def whole(running: Running, **fields: Any) -> tuple[str, str, int]:
    """Thought, answer and tokens of thought."""
    reply = running.chat("hi", **fields)
    assert reply.status == 200, reply.raw
    message = reply.json["choices"][0]["message"]
    assert message.get("reasoning") == message.get("reasoning_content")
    counted = reply.json["usage"]["completion_tokens_details"]["reasoning_tokens"]
    return message["reasoning_content"] or "", message["content"], counted


def streamed(running: Running, **fields: Any) -> tuple[str, str, int]:
    *chunks, last, _ = running.chat("hi", stream=True, stream_options={"include_usage": True}, **fields).events
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    thought, content = ("".join(d.get(name, "") for d in deltas) for name in ("reasoning_content", "content"))
    return thought, content, last["usage"]["completion_tokens_details"]["reasoning_tokens"]


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 1, "seed": 5},
                                    {"stop": ["x", "a"], "temperature": 0}])
def test_a_budget_closes_the_thought_and_the_answer_follows(thinker: Running, fields: dict[str, Any]) -> None:
    for budget in (0, 1, 7):
        ask = {"max_tokens": 40, "ignore_eos": True, "thinking_budget": budget, **fields}
        thought, content, counted = whole(thinker, **ask)
        assert counted == budget + len(CLOSING) - 2
        assert len(thought) <= budget
        assert content or fields.get("stop")
        assert streamed(thinker, **ask) == (thought, content, counted)
        ask["thinking_token_budget"] = ask.pop("thinking_budget")
        assert whole(thinker, **ask) == (thought, content, counted)


def test_without_a_budget_a_thought_may_fill_the_answer(thinker: Running) -> None:
    thought, content, counted = whole(thinker, max_tokens=12, ignore_eos=True)
    assert thought
    assert (content, counted) == ("", 12)
    hidden = thinker.chat("hi", max_tokens=12, ignore_eos=True, include_reasoning=False).json
    assert hidden["choices"][0]["message"]["reasoning"] is None
    assert hidden["usage"]["completion_tokens_details"]["reasoning_tokens"] == 12
    events = thinker.chat("hi", max_tokens=12, ignore_eos=True, include_reasoning=False, stream=True).events
    assert "reasoning" not in json.dumps(events[:-1])


def test_effort_switches_thoughts_off_and_on(thinker: Running) -> None:
    off = thinker.chat("hi", reasoning_effort="none", temperature=0).json
    assert "completion_tokens_details" not in off["usage"]
    assert off["choices"][0]["message"]["reasoning"] is None
    same = thinker.chat("hi", chat_template_kwargs={"enable_thinking": False}, temperature=0).json
    assert same["choices"] == off["choices"]
    on = thinker.chat("hi", reasoning_effort="high").json
    assert on["usage"]["prompt_tokens"] < off["usage"]["prompt_tokens"]


def test_a_grammar_begins_behind_the_thought(thinker: Running) -> None:
    for fields in ({"thinking_budget": 5}, {"reasoning_effort": "none"},
                   {"thinking_budget": 100, "logit_bias": {str(ord("<")): 100}}):
        ask = {"max_tokens": 60, "response_format": FORMAT, "temperature": 1, "seed": 3, **fields}
        reply = thinker.chat("hi", **ask)
        assert reply.status == 200, reply.raw
        message = reply.json["choices"][0]["message"]
        if reply.json["choices"][0]["finish_reason"] == "length":
            assert (message["content"], len(message["reasoning_content"])) == ("", 60)
            continue
        assert 0 <= json.loads(message["content"])["a"] <= 99
        deltas = [c["choices"][0]["delta"] for c in thinker.chat("hi", stream=True, **ask).events[:-1]]
        assert "".join(d.get("content", "") for d in deltas) == message["content"]


def test_n_answers_have_thoughts_of_their_own(thinker: Running) -> None:
    reply = thinker.chat("hi", n=3, temperature=1, seed=2, thinking_budget=4, max_tokens=30, ignore_eos=True,
                         logprobs=True)
    choices = reply.json["choices"]
    assert len({c["message"]["reasoning_content"] for c in choices}) > 1
    assert all(len(c["logprobs"]["content"]) == 30 for c in choices)
    assert reply.json["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3 * (4 + len(CLOSING) - 2)


def test_what_a_model_cannot_do_is_refused(server: Running, thinker: Running) -> None:
    for name in ("thinking_budget", "max_thinking_tokens", "thinking_token_budget"):
        assert server.chat("hi", **{name: 5}).error["param"] == name
        assert server.chat("hi", **{name: -1}).status == 200
    assert "differ" in thinker.chat("hi", thinking_budget=3, max_thinking_tokens=4).error["message"]
    assert thinker.chat("hi", reasoning_effort="huge").status == 400


def test_a_thought_comes_back_as_history(thinker: Running) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "c"},
                {"role": "user", "content": "d"}]
    assert thinker.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2}).status == 200


@pytest.mark.parametrize(("text", "thought", "content"), [
    ("Hmm.\n</think>\n\nYes.", "Hmm.", "Yes."), ("Hmm", "Hmm", ""), ("\n</think>Yes", "", "Yes")])
def test_the_openai_client_sees_both(path: Path, text: str, thought: str, content: str) -> None:
    async def script(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        for letter in text:
            yield said(letter)
        yield ended()

    with scripted(path, script) as (running, _):
        client = OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        ask: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
        message = client.chat.completions.create(**ask).choices[0].message
        assert (getattr(message, "reasoning_content", "") or "", message.content) == (thought, content)
        deltas = [c.choices[0].delta for c in client.chat.completions.create(stream=True, **ask) if c.choices]
    assert "".join(getattr(d, "reasoning_content", "") or "" for d in deltas) == thought
    assert "".join(d.content or "" for d in deltas) == content


def test_marks_can_be_named(model_path: Path) -> None:
    async def script(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield said("<r>so</r>yes")
        yield ended()

    for parser, expected in (("tag:r", ("so", "yes")), ("none", (None, "<r>so</r>yes"))):
        with scripted(model_path, script, reasoning_parser=parser) as (running, _):
            message = running.chat("hi").json["choices"][0]["message"]
            assert (message.get("reasoning_content"), message["content"]) == expected
