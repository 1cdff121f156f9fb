"""Which answers are good: every row of docs/bench.md, "What counts as failed"."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drut.bench.load.answer import StreamedAnswer
from drut.bench.load.record import LoadRecord

SSE = b"text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


def part(text: str | None = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}],
            **more}


def event(value: Any, name: str = "") -> bytes:
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


ONE, TWO, STOP = event(part("one")), event(part(" two")), event(part(finish="stop"))
USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
GOOD = ONE + TWO + STOP + USAGE + DONE


def streamed(*reads: bytes, kind: bytes = SSE, status: int = 200) -> LoadRecord:
    """A stream of which each read comes 10 ms after the one before."""
    answer = StreamedAnswer(LoadRecord("s", 0, 0.0, max_tokens=8))
    answer.head(status, kind, None)
    for i, data in enumerate(reads):
        if not answer.body(data, i / 100):
            return answer.record
    answer.end(len(reads) / 100)
    return answer.record


def whole(body: Any, stream: bool = False, kind: bytes = b"application/json") -> LoadRecord:
    answer = StreamedAnswer(LoadRecord("s", 0, 0.0, max_tokens=8), stream)
    answer.head(200, kind, None)
    if answer.body(body if isinstance(body, bytes) else json.dumps(body).encode(), 0.5):
        answer.end(0.5)
    return answer.record


def message(text: str | None, finish: Any = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": finish}], **more}


CALL = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}
OLD_CALL = {"function_call": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("stream", [
    GOOD,
    ONE + TWO + STOP + DONE,  # without usage
    ONE + TWO + STOP,  # without [DONE]
    ONE + event(part(" two", "length")) + USAGE + DONE,
    b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"),
    GOOD.replace(b"\n", b"\r"),
    b": keep-alive\n\n" + ONE + b": keep-alive\n\ndata:\n\n" + TWO + STOP + DONE,
    event({"type": "ping"}, "ping") + GOOD,
    GOOD + DONE,
    GOOD + ONE,  # nothing after [DONE] is read
    event(part("", error=None)) + GOOD,
    ONE + TWO + STOP + STOP + DONE,
    event(part("one", "")) + event(part(" two", "")) + STOP + DONE,  # an empty reason is none
    event({"choices": [{"delta": CALL}]}) + event(part(finish="tool_calls")) + DONE,
    event({"choices": [{"delta": OLD_CALL}]}) + event(part(finish="function_call")) + DONE,
    event({"choices": [{"text": "one"}]}) + event({"choices": [{"text": "", "finish_reason": "stop_sequence"}]}) + DONE,
    event({"choices": [{"delta": {"refusal": "no"}}]}) + STOP + DONE,
])
def test_streams_that_are_good_answers(stream: bytes) -> None:
    for reads in ([stream], [stream[i: i + 1] for i in range(len(stream))]):
        record = streamed(*reads)
        assert (record.failure, record.detail) == (None, "")
        assert record.arrivals


@pytest.mark.parametrize(("stream", "failure", "words"), [
    (ONE + TWO + event(part(finish="abort")) + USAGE + DONE, "server", "finish_reason 'abort'"),
    (ONE + event(part(" two", "error")) + DONE, "server", "finish_reason 'error'"),
    (ONE + event(part(finish="content_filter")) + DONE, "server", "finish_reason 'content_filter'"),
    (ONE + event(part(finish="paused")) + DONE, "server", "finish_reason 'paused'"),
    (ONE + STOP + event(part(finish="error")) + DONE, "server", "finish_reason 'error'"),
    (ONE + event({"code": 422, "details": "upstream failed"}, "error") + DONE, "server", "upstream failed"),
    (ONE + event("upstream failed", "error") + STOP + DONE, "server", "upstream failed"),
    (event({"text": "x", "error_code": 50002}) + DONE, "server", "50002"),
    (event(part("x", error_code=50002)) + STOP + DONE, "server", "50002"),
    (ONE + event({"object": "error", "message": "engine died", "code": 500}) + DONE, "server", "engine died"),
    (ONE + event({"error": {"message": "out of memory"}}) + DONE, "server", "out of memory"),
    (ONE + event(part("x", error="out of memory")) + STOP + DONE, "server", "out of memory"),
    (ONE + STOP + event({"error": "late"}) + DONE, "server", "late"),
    (ONE + event({"detail": "gone"}) + DONE, "server", "gone"),
    (ONE + event({}) + STOP + DONE, "server", "{}"),
    (DONE, "cut", "ended without finish_reason"),
    (b"", "cut", "ended without finish_reason"),
    (b": keep-alive\n\n" * 9, "cut", "ended without finish_reason"),
    (ONE + TWO + DONE, "cut", "ended without finish_reason"),
    (ONE + TWO, "cut", "ended without finish_reason"),
    (event({"choices": []}) + USAGE + DONE, "cut", "ended without finish_reason"),
    (ONE + STOP[:-20], "cut", "ended without finish_reason"),  # in the middle of an event
    (ONE + STOP[:-20] + b"\n\n" + DONE, "malformed", "truncated"),
    (ONE + event("null") + STOP + DONE, "malformed", "null"),
    (ONE + event("[1]") + STOP + DONE, "malformed", "array"),
    (ONE + event("it works") + STOP + DONE, "malformed", "it works"),
    (ONE + b"data: {\"choices\": [{\"delta\": {\"content\": \"\xff\"}}]}\n\n" + STOP + DONE, "malformed", "UTF-8"),
    (ONE + event(part(finish=1)) + DONE, "malformed", "finish_reason"),
    (ONE + STOP + TWO + DONE, "malformed", "output after finish_reason"),
    (ONE + event({"choices": [{"index": 1, "delta": {"content": "x"}}]}) + STOP + DONE, "malformed", "one choice"),
    (event({"choices": [{"index": 0}, {"index": 1}]}) + ONE + STOP + DONE, "malformed", "one choice"),
    (ONE + STOP + event({"usage": {"completion_tokens": -1}}) + DONE, "malformed", "completion_tokens"),
    (ONE + STOP + event({"usage": {"completion_tokens": 10**6}}) + DONE, "malformed", "1000000 completion tokens"),
    (ONE + STOP + event({"usage": {"completion_tokens": "2"}}) + DONE, "malformed", "completion_tokens"),
    (STOP + USAGE + DONE, "empty", "no text, though 2 tokens"),
    (STOP + DONE, "empty", "no text"),
    (event(part(finish="tool_calls")) + USAGE + DONE, "empty", "no text"),
])
def test_streams_that_are_none(stream: bytes, failure: str, words: str) -> None:
    for reads in ([stream], [stream[i: i + 1] for i in range(len(stream))]):
        record = streamed(*reads)
        assert record.failure == failure
        assert words in record.detail


@pytest.mark.parametrize(("body", "failure", "words"), [
    (message("yes", "abort"), "server", "finish_reason 'abort'"),
    (message("yes", "error"), "server", "finish_reason 'error'"),
    (message("yes", None), "cut", "the response ended without finish_reason"),
    (message("", "stop", usage={"completion_tokens": 5}), "empty", "no text"),
    (message(None), "empty", "no text"),
    ({"error": {"message": "overloaded"}}, "server", "overloaded"),
    ({"object": "error", "message": "overloaded"}, "server", "overloaded"),
    ({"detail": "Not Found"}, "server", "Not Found"),
    ({"choices": []}, "cut", "without finish_reason"),
    ({"choices": [{"index": i, "message": {"content": "a"}, "finish_reason": "stop"} for i in (0, 1)]}, "malformed",
     "one choice"),
    (b"", "empty", "an empty body"),
    (b"  \r\n", "empty", "an empty body"),
    (b'{"choices": [{"mess', "malformed", "truncated"),
    (b"<html>busy</html>", "malformed", "text/x: "),
])
def test_whole_answers_that_are_none(body: Any, failure: str, words: str) -> None:
    record = whole(body, kind=b"text/x")
    assert record.failure == failure
    assert words in record.detail


def test_a_whole_answer_is_good_where_it_was_asked_for() -> None:
    assert whole(message("yes")).failure is None
    assert whole(message("yes", usage=None)).failure is None
    refused = whole(message("yes"), stream=True)
    assert refused.failure == "malformed"
    assert "--no-stream" in refused.detail
    assert whole({"error": "busy"}, stream=True).failure == "server"


@pytest.mark.parametrize("kind", [b"", b"text/plain", b"application/octet-stream"])
def test_a_stream_of_another_type_is_none(kind: bytes) -> None:
    record = streamed(GOOD, kind=kind)
    assert record.failure == "malformed"
    assert kind.decode() in record.detail


def test_a_usage_of_zeros_is_none() -> None:
    """As gateways put it into every part; the tokens are then counted by the text."""
    zeros = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    record = streamed(event(part("one", **zeros)), event(part(" two", "length", **zeros)), DONE)
    assert (record.failure, record.input_tokens, record.output_tokens, record.reported) == (None, None, None, [-1, -1])


def test_bytes_are_cut_anywhere_and_spaces_are_text() -> None:
    """Each event comes in pieces of 5 bytes: no character is broken, no space at an end is lost."""
    stream = (event(part("中文 ")) + event(part(" spaced ")).replace(b"data: ", b"data:") + event(part("é")) + STOP
              + event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 6}}) + DONE)
    record = streamed(*(stream[i: i + 5] for i in range(0, len(stream), 5)))
    assert record.failure is None
    assert record.chars[:3] == [3, 8, 1]
    assert record.output_tokens == 6
