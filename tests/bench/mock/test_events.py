"""The events of an answer and their due times, on the script's clock alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.mock.ask import MockAsk, parse_ask
from drut.bench.mock.events import Item, events
from drut.bench.mock.reply import plan_reply
from drut.bench.mock.script import Script, Stream, parse_script
from drut.bench.mock.writes import writes
from drut.errors import RequestError
from tests.bench.mock.reader import dechunk

TIMES: dict[str, Any] = {"ttft": {"kind": "constant", "ms": 100}, "itl": {"kind": "constant", "ms": 10}}


def make_ask(tokens: int, is_chat: bool = False, **more: Any) -> MockAsk:
    prompt = {"messages": [{"content": "a b c d"}]} if is_chat else {"prompt": "a b c d"}
    return parse_ask(is_chat, json.dumps({**prompt, "max_tokens": tokens, "stream": True, **more}).encode())


def items(script: Script, ask: MockAsk, request: int = 0) -> list[Item]:
    return list(events(script, ask, plan_reply(script, ask, request)))


def data(found: list[Item]) -> list[Any]:
    return [json.loads(item.data[6:]) for item in found if item.data and item.data.startswith(b"data: {")]


def dues(found: list[Item]) -> list[int]:
    return [round(item.due_s * 1e3) for item in found]


def test_a_plain_stream() -> None:
    found = items(parse_script(TIMES), make_ask(3))
    assert dues(found) == [100, 110, 120, 120]
    assert [item.tokens for item in found] == [1, 2, 3, 3]
    choices = [one["choices"][0] for one in data(found)]
    assert [choice["text"] for choice in choices] == [" t0", " t1", " t2"]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "length"]
    assert found[-1].data == b"data: [DONE]\n\n"


def test_a_chat_opens_with_a_role_at_the_start_of_service() -> None:
    found = items(parse_script(TIMES), make_ask(2, is_chat=True))
    assert dues(found) == [0, 100, 110, 110]
    assert [one["choices"][0]["delta"] for one in data(found)] == [
        {"role": "assistant", "content": ""}, {"content": " t0"}, {"content": " t1"}]


def test_bundles_are_due_with_their_last_token() -> None:
    found = items(parse_script({**TIMES, "stream": {"bundle": 3}}), make_ask(6))
    assert dues(found)[:-1] == [100, 130, 150]
    assert [one["choices"][0]["text"] for one in data(found)] == [" t0", " t1 t2 t3", " t4 t5"]


def test_empty_chunks_come_halfway() -> None:
    found = items(parse_script({**TIMES, "stream": {"empty_every": 2}}), make_ask(3))
    assert dues(found)[:-1] == [100, 105, 110, 120]
    assert [one["choices"][0]["text"] for one in data(found)] == [" t0", "", " t1", " t2"]


def test_reasoning_then_a_tool_call_then_the_finish_apart() -> None:
    stream = {"reasoning_tokens": 2, "tool_call": True, "finish_apart": True, "bundle": 4, "role_chunk": False}
    found = data(items(parse_script({**TIMES, "stream": stream}), make_ask(4, is_chat=True)))
    deltas = [one["choices"][0]["delta"] for one in found]
    assert deltas[:2] == [{"reasoning_content": " t0"}, {"reasoning_content": " t1"}]
    assert deltas[2]["tool_calls"][0]["function"] == {"name": "mock", "arguments": " t2 t3"}
    assert deltas[3] == {"content": ""}
    assert [one["choices"][0]["finish_reason"] for one in found] == [None, None, None, "tool_calls"]


@pytest.mark.parametrize(("usage", "asked", "present"), [
    ("asked", False, False), ("asked", True, True), ("always", False, True), ("not_streamed", True, False),
    ("never", True, False)])
def test_usage(usage: str, asked: bool, present: bool) -> None:
    script = parse_script({**TIMES, "usage": usage, "cached_share": 0.5})
    found = data(items(script, make_ask(3, stream_options={"include_usage": asked})))
    numbers = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7,
               "prompt_tokens_details": {"cached_tokens": 2}}
    assert [one["usage"] for one in found if "usage" in one] == ([numbers] if present else [])
    assert [one["choices"] for one in found if not one["choices"]] == ([[]] if present else [])


def test_continuous_usage_counts_up() -> None:
    script = parse_script({**TIMES, "stream": {"continuous_usage": True}})
    assert [one["usage"]["completion_tokens"] for one in data(items(script, make_ask(3)))] == [1, 2, 3]
    asked = make_ask(3, stream_options={"continuous_usage_stats": True})
    assert [one["usage"]["completion_tokens"] for one in data(items(parse_script(TIMES), asked))] == [1, 2, 3]


def test_done_late_or_never() -> None:
    late = items(parse_script({**TIMES, "stream": {"done_delay_ms": 500}}), make_ask(2))
    assert dues(late) == [100, 110, 610]
    never = items(parse_script({**TIMES, "stream": {"done": False}}), make_ask(2))
    assert dues(never) == [100, 110]


def test_faults_in_mid_stream_come_when_the_next_token_is_due() -> None:
    script = parse_script({**TIMES, "faults": [{"kind": "event", "every": 2, "after_tokens": 2}]})
    found = items(script, make_ask(5), request=1)
    assert dues(found) == [100, 110, 120, 120]
    assert data(found)[2]["error"]["code"] == 500
    assert len(items(script, make_ask(5), request=0)) == 6
    script = parse_script({**TIMES, "faults": [{"kind": "cut", "every": 1, "after_tokens": 2}]})
    found = items(script, make_ask(5))
    assert dues(found) == [100, 110, 120]
    assert found[-1].data is None


def test_faults_of_chance_have_their_share_and_follow_the_seed() -> None:
    script = parse_script({**TIMES, "faults": [{"kind": "status", "probability": 0.1}]})
    struck = [plan_reply(script, make_ask(1), i).fault is not None for i in range(3000)]
    assert sum(struck) == pytest.approx(300, abs=5 * (3000 * 0.1 * 0.9) ** 0.5)  # five standard deviations
    assert struck == [plan_reply(script, make_ask(1), i).fault is not None for i in range(3000)]


def test_the_length_is_the_scripts_unless_the_client_will_have_all() -> None:
    script = parse_script({"output_tokens": [3, 7]})
    replies = [plan_reply(script, make_ask(5), i) for i in range(2)]
    assert [(reply.tokens, reply.finish_reason) for reply in replies] == [(3, "stop"), (5, "length")]
    assert plan_reply(script, make_ask(5, ignore_eos=True), 0).tokens == 5
    assert plan_reply(script, parse_ask(False, b'{"prompt": "a"}'), 1).tokens == 7


@pytest.mark.parametrize(("prompt", "tokens"), [
    ("a bc  d\n", 3), ("", 0), ([5, 6, 7], 3), (["a b", "c"], 3)])
def test_prompt_tokens_are_words_or_ids(prompt: Any, tokens: int) -> None:
    assert parse_ask(False, json.dumps({"prompt": prompt}).encode()).prompt_tokens == tokens
    parts = [{"type": "text", "text": "a b"}, {"type": "image_url"}]
    body = {"messages": [{"role": "system", "content": "one two"}, {"role": "user", "content": parts}]}
    assert parse_ask(True, json.dumps(body).encode()).prompt_tokens == 4


@pytest.mark.parametrize(("body", "name"), [
    (b"{", "body"), (b'{"max_tokens": 3}', "prompt"), (b'{"prompt": "a", "max_tokens": -1}', "max_tokens"),
    (b'{"prompt": "a", "max_tokens": "x"}', "max_tokens"), (b"[" * 100_000, "body"),
    (b'{"prompt": "\xff"}', "body")])
def test_a_bad_body_is_refused_by_name(body: bytes, name: str) -> None:
    with pytest.raises(RequestError, match=name):
        parse_ask(False, body)


STREAMS = st.builds(
    Stream, bundle=st.integers(1, 5), crlf=st.booleans(), empty_every=st.none() | st.integers(1, 4),
    comment_every_ms=st.none() | st.sampled_from([7.0, 33.0]), events_per_write=st.integers(1, 5),
    split_bytes=st.none() | st.integers(1, 400), split_gap_ms=st.sampled_from([0.0, 0.5]),
    done=st.booleans(), finish_apart=st.booleans(), done_delay_ms=st.sampled_from([0.0, 50.0]))


@given(stream=STREAMS, tokens=st.integers(1, 20), is_chat=st.booleans())
def test_whatever_the_writes_the_events_are_the_same(stream: Stream, tokens: int, is_chat: bool) -> None:
    plain = parse_script({**TIMES, "usage": "always"})
    script = Script(ttft=plain.ttft, itl=plain.itl, usage="always", stream=stream)
    ask = make_ask(tokens, is_chat=is_chat)
    due = list(items(script, ask))
    written = list(writes(iter(due), stream))
    payload = dechunk(b"".join(item.data or b"" for item in written))
    end = b"\r\n" if stream.crlf else b"\n"
    lines = [line for line in payload.split(end) if line and not line.startswith(b":")]
    assert lines == [(item.data or b"").strip() for item in due]
    assert payload.count(b"\r") == (payload.count(b"\n") if stream.crlf else 0)
    at = [item.due_s for item in written]
    assert at == sorted(at)
    assert [item.tokens for item in written] == sorted(item.tokens for item in written)
    assert written[-1].tokens == tokens


@given(stream=STREAMS, after=st.integers(0, 6))
def test_a_cut_is_the_last_thing_written(stream: Stream, after: int) -> None:
    script = Script(stream=stream, faults=parse_script({"faults": [
        {"kind": "cut", "every": 1, "after_tokens": after}]}).faults)
    written = list(writes(iter(items(script, make_ask(4))), stream))
    assert [item.data is None for item in written] == [False] * (len(written) - 1) + [True]
    assert written[-1].tokens == min(after, 4)


def test_writes_joined_cut_and_kept_alive() -> None:
    def due(**stream: Any) -> list[tuple[float, int]]:
        script = parse_script({**TIMES, "stream": {"done": False, **stream}})
        found = writes(iter(items(script, make_ask(4))), script.stream)
        return [(round(item.due_s * 1e3, 3), item.tokens) for item in found if item.data != b"0\r\n\r\n"]

    assert due(events_per_write=3) == [(120, 3), (130, 4)]
    assert due(comment_every_ms=45) == [(45, 0), (90, 0), (100, 1), (110, 2), (120, 3), (130, 4)]
    pieces = due(split_bytes=100, split_gap_ms=1)
    assert pieces[:3] == [(100, 0), (101, 1), (110, 1)]
