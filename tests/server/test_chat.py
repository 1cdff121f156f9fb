"""`/v1/chat/completions`: messages in, a message out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.server.rig import Running

PATH = "/v1/chat/completions"


def prompt_of(server: Running, messages: list[dict[str, Any]], **fields: Any) -> str:
    """The text the model was given."""
    reply = server.post(PATH, {"messages": messages, "max_tokens": 1, "return_token_ids": True} | fields)
    assert reply.status == 200, reply.raw
    return server.post("/detokenize", {"tokens": reply.json["prompt_token_ids"]}).json["prompt"].removeprefix("<bos>")


def test_a_whole_answer(server: Running) -> None:
    body = server.chat("hi", max_tokens=6, temperature=0).json
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    (choice,) = body["choices"]
    assert set(choice) == {"index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids"}
    assert {name for name, value in choice["message"].items() if value is not None} == {"role", "content"}
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 6


def test_a_stream_sends_role_text_end_and_usage(server: Running) -> None:
    """litellm#28735: usage is known by its empty choices, and comes once, before [DONE]."""
    whole = server.chat("hi", max_tokens=6, temperature=0).json
    reply = server.chat("hi", max_tokens=6, temperature=0, stream=True, stream_options={"include_usage": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, usage, done = reply.events
    assert done == "[DONE]"
    assert len({(c["id"], c["created"], c["model"], c["system_fingerprint"]) for c in [*chunks, usage]}) == 1
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert all(c["usage"] is None for c in chunks)
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"] | {"prompt_tokens_details": usage["usage"]["prompt_tokens_details"]}
    first, *middle, last = [c["choices"][0] for c in chunks]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["delta"]["content"] for c in middle) == whole["choices"][0]["message"]["content"]
    assert (last["delta"], last["finish_reason"]) == ({}, "length")
    assert all(c["finish_reason"] is None for c in (first, *middle))


def test_usage_in_every_chunk(server: Running) -> None:
    events = server.chat(stream=True, stream_options={"continuous_usage_stats": True}, ignore_eos=True).events[:-1]
    counts = [e["usage"]["completion_tokens"] for e in events]
    assert counts == sorted(counts)
    assert counts[-1] == 5
    assert {e["usage"]["prompt_tokens"] for e in events} == {events[0]["usage"]["prompt_tokens"]}


def test_choices_end_once_each(server: Running) -> None:
    """sglang#8417: the end was sent twice, or for the last choice only."""
    *events, done = server.chat(stream=True, n=3, temperature=1, seed=7, max_tokens=6).events
    assert done == "[DONE]"
    assert len({(e["id"], e["created"], e["model"]) for e in events}) == 1
    for index in range(3):
        own = [c for e in events for c in e["choices"] if c["index"] == index]
        assert [c["finish_reason"] is not None for c in own] == [False] * (len(own) - 1) + [True]


def test_logprobs_have_bytes_that_make_the_text(server: Running) -> None:
    choice = server.chat(temperature=1, seed=1, max_tokens=20, logprobs=True, top_logprobs=3).json["choices"][0]
    content = choice["logprobs"]["content"]
    assert bytes(b for t in content for b in t["bytes"] or ()).decode(errors="replace") == choice["message"]["content"]
    for token in content:
        tops = [t["logprob"] for t in token["top_logprobs"]]
        assert len(tops) == 3
        assert tops == sorted(tops, reverse=True)
        assert token["logprob"] <= tops[0] <= 0
    plain = server.chat(seed=1, logprobs=True, max_tokens=2).json["choices"][0]["logprobs"]["content"]
    assert [t["top_logprobs"] for t in plain] == [[], []]


def test_prompt_logprobs(server: Running) -> None:
    body = server.chat(prompt_logprobs=1).json
    first, *others = body["prompt_logprobs"]
    assert first is None
    assert len(others) == body["usage"]["prompt_tokens"] - 1
    assert all(min(p["rank"] for p in entry.values()) == 1 for entry in others)


def test_roles_and_parts(server: Running) -> None:
    """mlx-openai-server#267: a developer's message was an unexpected role."""
    talk = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert prompt_of(server, talk) == "[s]Be brief.\n[u]Hi\n[a]"
    parts = [{"role": "user", "content": [{"type": "text", "text": "Weather"}, {"type": "text", "text": " in Oslo?"}]}]
    assert prompt_of(server, parts) == "[u]Weather in Oslo?\n[a]"
    history = [{"role": "user", "content": "a"},
               {"role": "assistant", "content": "b", "tool_calls": [], "refusal": None, "annotations": []},
               {"role": "user", "content": "c", "name": "Ann"}]
    assert prompt_of(server, history) == "[u]a\n[a]b\n[u]c\n[a]"


def test_an_answer_can_be_begun(server: Running) -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "once upon "}]
    open_ended = {"continue_final_message": True, "add_generation_prompt": False}
    assert prompt_of(server, talk, **open_ended) == "[u]a\n[a]once upon "
    plain = server.post(PATH, {"messages": talk, "temperature": 0, "max_tokens": 4} | open_ended).json
    echo = server.post(PATH, {"messages": talk, "temperature": 0, "max_tokens": 4, "echo": True} | open_ended).json
    said = [body["choices"][0]["message"]["content"] for body in (plain, echo)]
    assert said[1] == "once upon " + said[0]
    both = server.post(PATH, {"messages": talk, "continue_final_message": True, "add_generation_prompt": True})
    assert both.error["param"] == "continue_final_message"


REFUSED = [
    ({"content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}]}, "content[0].image_url"),
    ({"content": ["a", {"type": "hologram"}]}, "content[1].type"),
    ({"role": "narrator", "content": "x"}, "role"),
    ({"role": "user", "content": "x", "audio": {"id": "a"}}, "audio"),
    ({"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "function": {"name": "f", "arguments": ""}}]},
     "tool_calls[0].type"),
]


@pytest.mark.parametrize(("message", "named"), REFUSED)
def test_what_messages_cannot_hold_yet_is_named(server: Running, message: dict[str, Any], named: str) -> None:
    error = server.post(PATH, {"messages": [{"role": "user"} | message]}).error
    assert error["code"] == "unsupported_parameter"
    assert error["param"] == f"messages[0].{named}"
    assert named in error["message"]


def test_parts_are_text_in_the_words_of_several_clients(server: Running) -> None:
    plain = server.post("/tokenize", {"messages": [{"role": "user", "content": "abcd"}]}).json["tokens"]
    parts = ["a", {"type": "text", "text": "b"}, {"type": "input_text", "text": "c"},
             {"type": "output_text", "text": "d"}]
    assert server.post("/tokenize", {"messages": [{"role": "user", "content": parts}]}).json["tokens"] == plain


def test_a_refusal_becomes_content_of_the_assistant(server: Running) -> None:
    def ids(message: dict[str, Any]) -> list[int]:
        return server.post("/tokenize", {"messages": [{"role": "assistant"} | message]}).json["tokens"]

    assert ids({"refusal": "no"}) == ids({"content": [{"type": "refusal", "refusal": "no"}]}) == ids({"content": "no"})
    assert ids({"content": None, "refusal": "no"}) == ids({"content": "no", "refusal": None})
    for message, param in (({"role": "assistant", "content": "x", "refusal": "no"}, "messages[0].refusal"),
                           ({"role": "user", "refusal": "no"}, "messages[0].refusal"),
                           ({"role": "user", "content": [{"type": "refusal"}]}, "messages[0].content[0].refusal"),
                           ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
                           ({"role": "user", "content": [{"text": "x"}]}, "messages[0].content[0].type")):
        assert server.post(PATH, {"messages": [message]}).error["param"] == param


def test_the_roles_there_are_stand_in_the_error(server: Running) -> None:
    error = server.post(PATH, {"messages": [{"role": "robot", "content": "x"}]}).error
    for role in ("system", "developer", "user", "assistant", "tool"):
        assert role in error["message"]


def test_template_variables_that_the_template_does_not_look_at_are_named(server: Running) -> None:
    plain = server.chat(temperature=0).json
    for fields, named in (({"chat_template_kwargs": {"enable_thinking": False, "a,b": 1}},
                           "chat_template_kwargs.enable_thinking, chat_template_kwargs.a?b"),
                          ({"reasoning_effort": "max"}, "reasoning_effort"),
                          ({"reasoning_effort": "none"}, None), ({"chat_template_kwargs": {}}, None)):
        reply = server.chat(temperature=0, **fields)
        assert (reply.status, reply.headers.get("x-drut-ignored")) == (200, named)
        assert reply.json["choices"] == plain["choices"]
    messages = [{"role": "user", "content": "hi"}]
    tokens = server.post("/tokenize", {"messages": messages, "chat_template_kwargs": {"x": 1}})
    assert tokens.headers["x-drut-ignored"] == "chat_template_kwargs.x"
    for name in ("messages", "tools", "add_generation_prompt", "chat_template", "tokenize"):
        error = server.chat(chat_template_kwargs={name: True}).error
        assert error["param"] == "chat_template_kwargs"
        assert name in error["message"]


def test_max_completion_tokens_wins(server: Running) -> None:
    assert server.chat(max_tokens=9, max_completion_tokens=3, ignore_eos=True).json["usage"]["completion_tokens"] == 3
    body = server.post(PATH, {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True}).json
    assert body["usage"]["total_tokens"] == 160


def test_output_in_a_batch_equals_output_alone(server: Running) -> None:
    """Many times over, since bursts of steps, arrivals and ends meet each other at moments of their own."""
    def say(seed: int) -> str:
        reply = server.chat(temperature=1, max_tokens=100, seed=seed)
        return str(reply.json["choices"][0]["message"]["content"])

    alone = [say(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            assert list(pool.map(say, range(8))) == alone
