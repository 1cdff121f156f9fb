"""One request at a time against servers that answer well, badly, or not at all."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from drut.bench.address import tls_context
from drut.bench.load.answer import StreamedAnswer
from drut.bench.load.client import Client, Target
from drut.bench.load.record import LoadRecord
from drut.bench.server_side.page import fetch
from drut.bench.tokens import ServerTokenizer
from drut.bench.work import ConversationTurn, Message
from drut.errors import DrutError, RequestError
from tests.bench.scripted import Handler, Request, ScriptedServer, tokens

HELLO = ConversationTurn(messages=[{"role": "user", "content": "hello"}], max_tokens=5)


def asked(server: ScriptedServer, turn: ConversationTurn = HELLO, times: int = 1, history: list[Message] | None = None,
          **target: Any) -> list[StreamedAnswer]:
    """Asks one after the other, on one client."""

    async def main() -> list[StreamedAnswer]:
        client = Client(Target(server.url, "m", **target))
        answers = []
        for _ in range(times):
            answer = StreamedAnswer(LoadRecord("s", 0, 0.0), client.stream)
            await client.ask(client.encode(turn, history or []), answer)
            answers.append(answer)
        client.close()
        return answers

    return asyncio.run(main())


def record_of(handler: Handler, **more: Any) -> LoadRecord:
    with ScriptedServer(handler) as server:
        return asked(server, **more)[0].record


def test_a_stream_of_tokens_is_recorded() -> None:
    with ScriptedServer(tokens(4, 0.01, 0.01)) as server:
        answer = asked(server)[0]
    record = answer.record
    assert (record.failure, record.status, record.streamed) == (None, 200, True)
    assert (record.input_tokens, record.output_tokens, record.finish_reason) == (3, 4, "length")
    assert len(record.arrivals) == len(record.chars) <= 4  # fewer where this process was given no CPU for a while
    assert sum(record.chars) == 12
    assert record.sent + 0.0099 < record.arrivals[0]
    assert record.sent + 0.0399 < record.arrivals[-1] <= record.ended
    assert answer.message() == {"role": "assistant", "content": "t0 t1 t2 t3 "}


def test_what_is_asked() -> None:
    turn = ConversationTurn(messages=[{"role": "user", "content": "more"}], max_tokens=9, exact=True,
                            body={"temperature": 1})
    with ScriptedServer(tokens(1)) as server:
        asked(server, turn, history=[{"role": "system", "content": "be brief"}], headers={"Authorization": "Bearer k"},
              body={"temperature": 0, "top_p": 1}, continuous_usage=True)
        asked(server, ConversationTurn(prompt=[1, 2], max_tokens=2), stream=False)
        chat, plain = server.requests
    assert chat.path == "/v1/chat/completions"
    assert chat.headers["authorization"] == "Bearer k"
    assert chat.body == {
        "model": "m", "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_tokens": 9, "temperature": 1, "top_p": 1, "min_tokens": 9, "ignore_eos": True,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "more"}]}
    assert plain.path == "/v1/completions"
    assert plain.body == {"model": "m", "stream": False, "max_tokens": 2, "prompt": [1, 2]}


@pytest.mark.parametrize(("url", "path"), [("http://h", "/v1/completions"), ("http://h/v1/", "/v1/completions"),
                                           ("https://h:1/a", "/a/v1/completions")])
def test_the_url_may_end_in_v1_or_not(url: str, path: str) -> None:
    assert Target(url, "m").path(chat=False) == path


@pytest.mark.parametrize("target", [{"url": "ftp://h"}, {"url": "h:80"}, {"url": "http://h:99999"},
                                    {"url": "http://[::1"}, {"url": "http://user:word@h"}, {"url": "http://user@h"},
                                    {"url": "http://h", "headers": {"a": "\u20ac"}},
                                    {"url": "http://h", "headers": {"a": "\x1b"}},
                                    {"url": "http://h", "headers": {"a b": "c"}},
                                    {"url": "http://h", "headers": {"a": "b\r\nc: d"}},
                                    {"url": "http://h", "headers": {"Content-Length": "3"}},
                                    {"url": "http://h", "timeout_s": 0.0}])
def test_a_target_that_cannot_be_is_refused(target: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        Target(**{"model": "m", **target})


def test_the_connection_is_used_again() -> None:
    with ScriptedServer(tokens(2)) as server:
        answers = asked(server, times=5)
        assert {a.record.failure for a in answers} == {None}
        assert len({request.connection for request in server.requests}) == 1
    assert [a.record.connect_s > 0 for a in answers] == [True, False, False, False, False]


def test_a_connection_that_the_server_closed_while_idle_is_no_failure() -> None:
    async def closes(request: Request) -> None:
        await tokens(2)(request)
        request.close()  # without a header that announces it

    with ScriptedServer(closes) as server:
        answers = asked(server, times=6)
    assert [a.record.failure for a in answers] == [None] * 6


def test_a_second_sending_does_not_make_the_client_late() -> None:
    """The server closes the used connection only after a while: the wait is its own."""
    async def second_is_cut(request: Request) -> None:
        if len(server.requests) == 2:
            await asyncio.sleep(0.3)
            request.cut()
        else:
            await tokens(2)(request)

    with ScriptedServer(second_is_cut) as server:
        began = time.monotonic()
        record = asked(server, times=2)[1].record
        assert len(server.requests) == 3
    assert record.failure is None
    assert record.sent is not None
    assert record.arrivals[0] - record.sent >= 0.3
    assert record.sent - began < record.arrivals[0] - began - 0.3 + 1e-9


def test_a_request_on_a_new_connection_is_not_sent_twice() -> None:
    async def cuts(request: Request) -> None:
        request.cut()

    with ScriptedServer(cuts) as server:
        record = asked(server)[0].record
        assert len(server.requests) == 1
    assert record.failure == "cut"
    assert record.ended is not None


def test_bytes_one_by_one_are_the_same_answer() -> None:
    async def slow(request: Request) -> None:
        body = "".join(f'data: {json.dumps({"choices": [{"delta": {"content": c}}]})}\r\n\r\n' for c in "अब")
        body += 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        data = body.encode()
        whole = (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                 b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
        for i in range(len(whole)):
            await request.raw(whole[i: i + 1])
            if i % 16 == 0:
                await asyncio.sleep(0)

    with ScriptedServer(slow) as server:
        answers = asked(server, times=2)
    assert [a.text() for a in answers] == ["अब", "अब"]
    assert [a.record.failure for a in answers] == [None, None]


async def _error_status(request: Request) -> None:
    await request.json({"error": {"message": "too\nmany"}}, 429)


async def _error_event(request: Request) -> None:
    await request.head()
    await request.text("a")
    await request.event({"error": {"message": "out of memory", "code": 500}})
    await request.done()


async def _cut(request: Request) -> None:
    await request.head()
    await request.text("a")
    await asyncio.sleep(0.02)
    request.cut()


async def _no_end(request: Request) -> None:
    await request.head()
    await request.text("a")
    await request.raw(b"0\r\n\r\n")


async def _not_json(request: Request) -> None:
    await request.head()
    await request.chunk(b"data: {\"choices\": [\n\n")


async def _wrong_type(request: Request) -> None:
    await request.head()
    await request.event({"choices": [{"delta": {"content": 5}}]})


async def _not_http(request: Request) -> None:
    await request.raw(b"SSH-2.0-OpenSSH_9.9\r\n")


async def _endless_head(request: Request) -> None:
    await request.raw(b"HTTP/1.1 200 OK\r\n")
    for i in range(2000):
        await request.raw(b"X-%d: %b\r\n" % (i, b"y" * 100))


async def _endless_trailer(request: Request) -> None:
    await request.head()
    await request.text("a", "length")
    await request.raw(b"0\r\nX: ")
    for _ in range(400):
        await request.raw(b"y" * 1000)


async def _endless_event(request: Request) -> None:
    await request.head()
    for _ in range(40):
        await request.chunk(b"data: " + b"x" * (1 << 16))


async def _nothing_said(request: Request) -> None:
    await request.head()
    for _ in range(5):
        await request.text("")
    await request.text("", "length")
    await request.usage(3, 5)
    await request.done()


async def _silent(request: Request) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(("handler", "failure", "words"), [
    (_error_status, "http", "status 429: {\"error\": {\"message\": \"too\\nmany\"}}"),
    (_error_event, "server", "out of memory"),
    (_cut, "cut", "ended inside the response"),
    (_no_end, "cut", "without finish_reason"),
    (_not_json, "malformed", "truncated"),
    (_wrong_type, "malformed", "Expected `str"),
    (_not_http, "malformed", "not HTTP/1.1"),
    (_endless_head, "malformed", "head of the response is longer"),
    (_endless_trailer, "malformed", "end of the response is longer"),
    (_endless_event, "malformed", "longer than 1048576 bytes"),
    (_nothing_said, "empty", "no text, though 5 tokens"),
    (_silent, "timeout", "within 0.3 s"),
])
def test_each_way_to_fail_has_its_name(handler: Handler, failure: str, words: str) -> None:
    record = record_of(handler, timeout_s=5.0 if handler is not _silent else 0.3)
    assert record.failure == failure
    assert words in record.detail
    assert len(record.detail) <= 200
    assert record.ended is not None


def usage_of(counts: dict[str, Any], **more: Any) -> LoadRecord:
    """Of an answer of two words with such a usage at its end."""
    record = LoadRecord("s", 0, 0.0, max_tokens=5)
    answer = StreamedAnswer(record)
    answer.head(200, b"text/event-stream", None)
    for piece in (_piece("a"), _piece("b", finish="length"), {"choices": [], "usage": counts, **more}):
        answer.body(b"data: " + json.dumps(piece).encode() + b"\n\n", 1.0)
    answer.end(1.0)
    return record


@pytest.mark.parametrize("more", [
    *({"usage": {"completion_tokens": n}} for n in (-5, 10**4, 10**9, 10**18, 10**30)),
    *({"usage": {"prompt_tokens": n}} for n in (-5, 1 << 31, 10**30)),
    {"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": -7}}},
    {"usage": {}, "metrics": {"queue_time_ms": -1e308}}, {"usage": {}, "why": {"queued_s": 1e300}},
])
def test_counts_and_times_that_cannot_be_are_no_answer(more: dict[str, Any]) -> None:
    record = usage_of(more.pop("usage"), **more)
    assert record.failure == "malformed"
    assert (record.output_tokens, record.input_tokens, record.cached_tokens, record.queue_s) == (None,) * 4


def test_hidden_tokens_may_be_as_many_as_were_asked_for() -> None:
    record = LoadRecord("s", 0, 0.0, max_tokens=100_000)
    answer = StreamedAnswer(record)
    answer.head(200, b"text/event-stream", None)
    answer.body(b"data: " + json.dumps(_piece("a", 100_000, "length")).encode() + b"\n\n", 1.0)
    assert (record.failure, record.output_tokens) == (None, 100_000)


def test_more_cached_tokens_than_there_are_is_not_known() -> None:
    assert usage_of({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 5}}).cached_tokens == 5
    assert usage_of({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 50}}).cached_tokens is None


@pytest.mark.parametrize("queue_ms", [b"9" * 6000, b"-1", b"1e308"])
def test_a_queue_time_in_the_head_that_cannot_be_is_passed_over(queue_ms: bytes) -> None:
    answer = StreamedAnswer(LoadRecord("s", 0, 0.0))
    answer.head(200, b"text/event-stream", queue_ms)
    assert answer.record.queue_s is None


def test_after_a_failure_the_next_request_is_none_the_worse() -> None:
    async def second_is_well(request: Request) -> None:
        await (tokens(2) if len(server.requests) == 2 else _error_event)(request)

    with ScriptedServer(second_is_well) as server:
        first, second = asked(server, times=2)
    assert (first.record.failure, second.record.failure) == ("server", None)


def test_no_server_at_all() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def main() -> LoadRecord:
            client = Client(Target(url, "m"))
            with pytest.raises(DrutError, match=r"cannot connect to 127\.0\.0\.1"):
                await client.prepare()
            answer = StreamedAnswer(LoadRecord("s", 0, 0.0))
            await client.ask(b"", answer)
            return answer.record

        record = asyncio.run(main())
    assert record.failure == "connect"
    assert record.sent is None


def test_a_whole_answer_is_one_arrival() -> None:
    async def whole(request: Request) -> None:
        await request.json({"choices": [{"message": {"content": "yes", "tool_calls": None}, "finish_reason": "stop"}],
                            "usage": {"prompt_tokens": 9, "completion_tokens": 2,
                                      "prompt_tokens_details": {"cached_tokens": 4}}})

    record = record_of(whole, stream=False)
    assert (record.failure, record.streamed, record.output_tokens, record.cached_tokens) == (None, False, 2, 4)
    assert len(record.arrivals) == 1


def test_an_answer_of_its_end_alone_is_no_failure() -> None:
    async def end(request: Request) -> None:
        await request.head()
        await request.text("", "stop")
        await request.usage(3, 1)
        await request.done()

    record = record_of(end)
    assert (record.failure, record.output_tokens, len(record.arrivals)) == (None, 1, 1)


def test_the_end_of_the_stream_is_no_arrival() -> None:
    async def lingers(request: Request) -> None:
        await request.head()
        await request.text("a", "length")
        await asyncio.sleep(0.05)
        await request.usage(1, 1)
        await request.done()

    record = record_of(lingers)
    assert len(record.arrivals) == 1
    assert record.ended - record.arrivals[0] > 0.045


def test_the_role_piece_is_no_token() -> None:
    """Servers send it before the prompt is read: it would make TTFT nothing."""
    async def role_first(request: Request) -> None:
        await request.head()
        await request.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        await asyncio.sleep(0.05)
        await request.text("a", "length")
        await request.usage(1, 1)
        await request.done()

    record = record_of(role_first)
    assert record.sent is not None
    assert len(record.arrivals) == 1
    assert record.arrivals[0] - record.sent > 0.045


def reported(*pieces: dict[str, Any]) -> list[int]:
    """`LoadRecord.reported` after pieces that come one by one."""
    record = LoadRecord("s", 0, 0.0)
    answer = StreamedAnswer(record)
    answer.head(200, b"text/event-stream", None)
    for i, piece in enumerate(pieces):
        assert answer.body(b"data: " + json.dumps(piece).encode() + b"\n\n", float(i))
    return record.reported


def _piece(text: str, used: int | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    usage = {} if used is None else {"usage": {"prompt_tokens": 1, "completion_tokens": used}}
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish, **more}], **usage}


def test_tokens_of_a_piece_are_taken_where_the_server_reports_them() -> None:
    assert reported(_piece("a", 1), _piece("bc", 4), _piece("", 5), _piece("d", 6, "length")) == [1, 3, 1, 1]
    assert reported(_piece("ab", token_ids=[1, 2]), _piece("c", token_ids=[3])) == [2, 1]
    assert reported(_piece("ab", logprobs={"content": [{"token": "a"}, {"token": "b"}]}), _piece("c")) == [2, -1]
    assert reported({"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b"]}}]}) == [2]


def test_the_usage_of_the_whole_answer_is_not_that_of_its_last_piece() -> None:
    assert reported(_piece("a"), _piece("b"), _piece("", 7, "length")) == [-1, -1]
    assert reported(_piece("a"), _piece("b"), _piece("", 7, "stop")) == [-1, -1, -1]


def test_pieces_of_one_read_are_one_arrival() -> None:
    record = LoadRecord("s", 0, 0.0)
    answer = StreamedAnswer(record)
    answer.head(200, b"text/event-stream", b"35")
    events = b"".join(b"data: " + json.dumps(_piece("ab", n)).encode() + b"\n\n" for n in (1, 2, 3))
    answer.body(events, 1.0)
    assert (record.arrivals, record.chars, record.reported, record.queue_s) == ([1.0], [6], [3], 0.035)


def test_reasoning_and_calls_are_output() -> None:
    record = LoadRecord("s", 0, 0.0)
    answer = StreamedAnswer(record)
    answer.head(200, b"text/event-stream", None)
    for i, delta in enumerate([
        {"reasoning_content": "hm"}, {"reasoning": "ah"}, {"content": "x"},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
    ]):
        answer.body(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n", float(i))
    assert record.chars == [2, 2, 1, 1, 5, 2]
    assert answer.message() == {"role": "assistant", "content": "x", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]}


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context, and its certificate, which is not trusted by default."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context, str(cert)


def test_https(tls: tuple[ssl.SSLContext, str]) -> None:
    context, cert = tls
    with ScriptedServer(tokens(3), tls=context) as server:
        server.url = server.url.replace("http://127.0.0.1", "https://localhost")
        assert asked(server, ca_file=cert)[0].record.failure is None
        assert asked(server, verify_tls=False)[0].record.failure is None
        refused = asked(server)[0].record
    assert refused.failure == "connect"
    assert "certificate" in refused.detail


def test_the_same_certificates_hold_for_metrics_and_tokenize(tls: tuple[ssl.SSLContext, str]) -> None:
    async def either(request: Request) -> None:
        await request.json({"tokens": [1], "count": 1} if request.path == "/tokenize" else {"a": 1})

    context, cert = tls
    with ScriptedServer(either, tls=context) as server:
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        for trust in (tls_context(ca_file=cert), tls_context(verify=False)):
            assert ServerTokenizer(url, "m", tls=trust).count("a") == 1
            assert fetch(f"{url}/metrics", tls=trust) == '{"a": 1}'
        for refused in (lambda: ServerTokenizer(url, "m"), lambda: fetch(f"{url}/metrics")):
            with pytest.raises(RequestError, match="certificate"):
                refused()
