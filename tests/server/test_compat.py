"""What clients of OpenAI, vLLM and llama.cpp expect of this server's routes, fields and replies."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pydantic
import pytest

from drut.server.http.app import PREFIXES
from tests.server.rig import PATIENCE_S, Running

HI = [{"role": "user", "content": "hi"}]


def test_openais_routes_work_without_v1(server: Running) -> None:
    assert PREFIXES == ("/v1", "")
    asked = {"prompt": "hi", "max_tokens": 3, "temperature": 0}
    assert server.post("/completions", asked).json["choices"] == server.post("/v1/completions", asked).json["choices"]
    chat = {"messages": HI, "max_tokens": 3, "temperature": 0}
    assert (server.post("/chat/completions", chat).json["choices"]
            == server.post("/v1/chat/completions", chat).json["choices"])
    assert server.get("/models").json == server.get("/v1/models").json
    assert server.get("/models/tiny").json == server.get("/v1/models/tiny").json
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
        assert client.chat.completions.create(model="tiny", messages=HI, max_tokens=2).choices  # type: ignore[arg-type]


def test_max_tokens_of_minus_one_is_no_limit(server: Running) -> None:
    for fields in ({"max_tokens": -1}, {"max_completion_tokens": -1}, {}):
        answer = server.chat("hi", **({"max_tokens": None} | fields), ignore_eos=True).json
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["total_tokens"] == 160
    assert server.complete(max_tokens=-1, ignore_eos=True).json["usage"]["total_tokens"] == 160
    for value in (0, -2):
        for name in ("max_tokens", "max_completion_tokens"):
            reply = server.chat("hi", **{name: value})
            assert (reply.status, reply.error["param"]) == (400, name)
    assert server.complete(max_tokens=-2).error["param"] == "max_tokens"


def test_temperatures_up_to_100(server: Running) -> None:
    for value in (2.5, 100):
        assert server.chat("hi", temperature=value).status == 200
        assert server.complete(temperature=value).status == 200
    for value in (100.5, -0.1, 1e300):
        reply = server.complete(temperature=value)
        assert (reply.status, reply.error["param"]) == (400, "temperature")


USAGE = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def test_continuous_usage_starts_at_nothing_and_ends_at_all(server: Running) -> None:
    events = server.chat("hi", max_tokens=6, n=2, ignore_eos=True, **USAGE).events[:-1]
    counts = [e["usage"]["completion_tokens"] for e in events]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] == 12
    assert {e["usage"]["prompt_tokens"] for e in events} == {events[0]["usage"]["prompt_tokens"]}
    events = server.complete(max_tokens=6, ignore_eos=True, return_token_ids=True, **USAGE).events[:-1]
    so_far = 0
    for event in events[:-1]:
        so_far += len(event["choices"][0]["token_ids"])
        assert event["usage"]["completion_tokens"] == so_far
    assert events[-1]["usage"]["completion_tokens"] == so_far == 6


def test_whole_replies_have_the_fields_that_clients_look_for(server: Running) -> None:
    chat = server.chat("hi").json
    for name in ("service_tier", "prompt_logprobs", "prompt_token_ids", "kv_transfer_params"):
        assert chat[name] is None
    assert chat["system_fingerprint"]
    message, choice = chat["choices"][0]["message"], chat["choices"][0]
    for name in ("refusal", "annotations", "audio", "function_call", "reasoning", "reasoning_content"):
        assert message[name] is None
    assert "tool_calls" not in message
    for name in ("logprobs", "stop_reason", "token_ids"):
        assert choice[name] is None
    text = server.complete().json
    for name in ("service_tier", "kv_transfer_params"):
        assert text[name] is None
    for name in ("logprobs", "stop_reason", "token_ids", "prompt_token_ids", "prompt_logprobs"):
        assert text["choices"][0][name] is None


TIMINGS = {"cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n",
           "predicted_ms", "predicted_per_token_ms", "predicted_per_second"}


@pytest.mark.parametrize("field", ["timings", "timings_per_token"])
def test_timings_of_llamacpp_where_asked(server: Running, field: str) -> None:
    prompt = "a prompt of some tokens, computed once and then found: " * 2
    for path, body in (("/v1/completions", {"prompt": prompt}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}]})):
        asked = body | {"max_tokens": 4, "ignore_eos": True, field: True}
        assert "timings" not in server.post(path, asked | {field: False}).json
        reply = server.post(path, asked).json
        timings, usage = reply["timings"], reply["usage"]
        assert set(timings) == TIMINGS
        assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"] > 0
        assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
        assert timings["predicted_n"] == usage["completion_tokens"] == 4
        assert timings["prompt_ms"] == pytest.approx(timings["prompt_per_token_ms"] * timings["prompt_n"])
        assert timings["predicted_ms"] >= 0
        events = server.post(path, asked | {"stream": True, "stream_options": {"include_usage": True}}).events[:-1]
        assert events[-1]["choices"] == []
        for event in events:
            ended = not event["choices"] or event["choices"][0]["finish_reason"] is not None
            assert ("timings" in event) == ended
            assert not ended or event["timings"]["predicted_n"] == 4


@pytest.mark.parametrize(("path", "body", "param"), [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 500}]}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 157}]}, "messages"),
    ("/v1/chat/completions", {"messages": HI, "n": 128, "max_tokens": 1, "top_k": -7}, "top_k"),
    ("/v1/completions", {"prompt": "x" * 500}, "prompt"),
    ("/v1/completions", {"prompt": [97] * 200}, "prompt"),
    ("/v1/completions", {"prompt": ["a"] * 100, "n": 100}, "prompt"),
    ("/v1/completions", {"prompt": "a", "logprob_token_ids": [5]}, "logprob_token_ids"),
    ("/v1/chat/completions", {"messages": HI, "logprobs": True, "logprob_token_ids": [5]}, "logprob_token_ids"),
])
def test_an_error_names_the_field_at_fault(server: Running, path: str, body: dict[str, Any], param: str) -> None:
    reply = server.post(path, body)
    assert (reply.status, reply.error["param"]) == (400, param)


def test_an_empty_list_of_tools_is_as_good_as_none(server: Running) -> None:
    plain = server.chat("hi", temperature=0).json["choices"]
    for fields in ({"tools": []}, {"tools": [], "tool_choice": "auto"}, {"tools": [], "tool_choice": "none"},
                   {"tool_choice": "auto"}, {"parallel_tool_calls": True}, {"parallel_tool_calls": False},
                   {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {"tools": None}):
        assert server.chat("hi", temperature=0, **fields).json["choices"] == plain, fields
    for fields in ({"tool_choice": "required"}, {"tools": [], "tool_choice": "required"}):
        reply = server.chat("hi", **fields)
        assert (reply.status, reply.error["param"]) == (400, "tool_choice")


def test_the_drawn_token_is_among_the_likeliest_with_the_same_logprob(server: Running) -> None:
    for top in (1, 3):
        found = server.complete("Hi there", max_tokens=3, temperature=0, logprobs=top).json["choices"][0]["logprobs"]
        for token, logprob, best in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True):
            assert best[token] == logprob == max(best.values())
            assert len(best) == top
    entries = server.chat("Hi there", max_tokens=3, temperature=0, logprobs=True, top_logprobs=2).json
    for entry in entries["choices"][0]["logprobs"]["content"]:
        assert entry["top_logprobs"][0] == {k: entry[k] for k in ("token", "logprob", "bytes")}


def test_scores_of_a_prompt_are_the_same_from_the_cache(server: Running) -> None:
    shared = "".join(chr(97 + i * 7 % 26) for i in range(120))

    def scores(end: str, **fields: Any) -> Any:
        choice = server.complete(shared + end, **({"max_tokens": 1, "temperature": 0} | fields)).json["choices"][0]
        return choice["prompt_logprobs"], choice["logprobs"]

    first, other, again = (scores(end, prompt_logprobs=1) for end in ("Alpha", "Beta", "Alpha"))
    assert first == again
    assert len(first[0]) == 125
    assert len(other[0]) == 124
    assert first[0][:120] == other[0][:120]
    echoed = [scores("Alpha", echo=True, max_tokens=0, logprobs=1) for _ in range(2)]
    assert echoed[0] == echoed[1]
    assert len(echoed[0][1]["tokens"]) == 125


def test_a_seed_holds_in_a_batch_with_requests_without_one(server: Running) -> None:
    asked = {"max_tokens": 24, "temperature": 0.9, "ignore_eos": True}
    alone = server.complete("seeded", seed=42, **asked).json["choices"]
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(server.complete, f"other {i}", n=4, **asked) for i in range(4)]
        again = [server.complete("seeded", seed=42, **asked).json["choices"] for _ in range(3)]
        assert all(other.result().status == 200 for other in others)
    assert again == [alone] * 3


def test_a_chat_with_everything_scored_has_an_answer(server: Running) -> None:
    """The scores of a chat's prompt come as a field of their own; its entries are the answer's."""
    messages = [*HI, {"role": "assistant", "content": "so"}]
    reply = server.post("/v1/chat/completions", {
        "messages": messages, "echo": True, "logprobs": True, "top_logprobs": 2, "prompt_logprobs": 2, "max_tokens": 3,
        "ignore_eos": True, "add_generation_prompt": False, "continue_final_message": True}).json
    assert len(reply["choices"][0]["logprobs"]["content"]) == 3
    assert len(reply["prompt_logprobs"]) == reply["usage"]["prompt_tokens"]


class Answer(pydantic.BaseModel):
    yes: bool
    n: int


NOW = {"type": "function", "function": {"name": "now", "strict": True, "parameters": {
    "type": "object", "properties": {}, "required": [], "additionalProperties": False}}}


def test_the_helpers_of_openais_client(caller: Running) -> None:
    with openai.OpenAI(base_url=f"{caller.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S,
                       _strict_response_validation=True) as client:
        chat: Any = client.chat.completions
        asked = {"model": "tiny", "messages": HI, "max_tokens": 200, "temperature": 0}
        parsed = chat.parse(**asked, response_format=Answer)
        assert isinstance(parsed.choices[0].message.parsed, Answer)
        with chat.stream(**asked, response_format=Answer) as stream:
            kinds = {event.type for event in stream}
        assert "content.done" in kinds
        assert stream.get_final_completion().choices[0].message.parsed == parsed.choices[0].message.parsed
        named = {"type": "function", "function": {"name": "now"}}
        with chat.stream(**asked, tools=[NOW], tool_choice=named) as stream:
            for _ in stream:
                pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
        assert (call.function.name, call.function.parsed_arguments) == ("now", {})
        two: Any = client.completions.create(model="tiny", prompt=["a", "b"], n=2, max_tokens=3)
        assert [choice.index for choice in two.choices] == [0, 1, 2, 3]


def test_a_large_reply_reaches_a_client_of_http_1_0(server: Running) -> None:
    """Which cannot read chunks."""
    body = json.dumps({"prompt": "x" * 140, "echo": True, "logprobs": 20, "n": 20, "max_tokens": 1,
                       "temperature": 0}).encode()
    head = (f"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    got = server.raw(head + body, timeout=PATIENCE_S)
    raw_head, _, raw_body = got.partition(b"\r\n\r\n")
    assert b" 200 " in raw_head.split(b"\r\n")[0]
    assert b"transfer-encoding" not in raw_head.lower()
    assert len(json.loads(raw_body)["choices"]) == 20
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE_S)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    assert [c["logprobs"] for c in json.loads(connection.getresponse().read())["choices"]] == [
        c["logprobs"] for c in json.loads(raw_body)["choices"]]
    connection.close()
