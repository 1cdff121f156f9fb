"""The scripted server over real sockets: endpoints, times, the line before its slots, faults, bad clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from drut.bench.mock import MockServer, parse_script, serve_script
from drut.bench.mock.http import MockConnection, MockRequest
from drut.errors import DrutError, RequestError
from tests.bench.mock.reader import Answer, ask, chat, complete, connect, request_bytes

SLOTS = {"slots": 2, "ttft": {"kind": "constant", "ms": 40}, "itl": {"kind": "constant", "ms": 20},
         "cached_share": 0.5, "usage": "always"}


@pytest.fixture(scope="module")
def quick() -> Iterator[MockServer]:
    with MockServer({"model": "quick"}) as server:
        yield server


@pytest.fixture(scope="module")
def slots() -> Iterator[MockServer]:
    with MockServer(SLOTS) as server:
        yield server


def together(count: int, call: Callable[[], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: call(), range(count)))


def test_endpoints(quick: MockServer) -> None:
    assert json.loads(ask(quick.url, "/v1/models").body)["data"][0]["id"] == "quick"
    assert ask(quick.url, "/health").status == 200
    tokens = json.loads(ask(quick.url, "/tokenize", {"prompt": "one two one"}).body)
    assert tokens["count"] == 3
    assert tokens["tokens"][0] == tokens["tokens"][2] != tokens["tokens"][1]
    assert ask(quick.url, "/v2/models").status == 404
    assert ask(quick.url, "/v1/models", {}).status == 404


def test_a_whole_answer(quick: MockServer) -> None:
    body = json.loads(complete(quick.url, stream=False, max_tokens=3).body)
    assert (body["object"], body["choices"][0]["text"]) == ("text_completion", " t0 t1 t2")
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    body = json.loads(chat(quick.url, stream=False, max_completion_tokens=2).body)
    assert body["choices"][0]["message"] == {"role": "assistant", "content": " t0 t1"}


def test_a_stream(quick: MockServer) -> None:
    answer = chat(quick.url, max_tokens=3)
    assert b"text/event-stream" in answer.head
    assert "".join(one["choices"][0]["delta"]["content"] for one in answer.events) == " t0 t1 t2"
    assert answer.lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("body", [b"{", b'{"max_tokens": 3}', b'{"prompt": 3}', b'{"prompt": "a", "max_tokens": -3}'])
def test_a_bad_request_is_told_and_served_no_further(quick: MockServer, body: bytes) -> None:
    answer = ask(quick.url, "/v1/completions", body)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["message"]


def test_requests_on_one_connection_are_answered_in_order(quick: MockServer) -> None:
    with connect(quick.url) as sock:
        one = request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 2, "stream": True}, close=False)
        sock.sendall(one * 40 + request_bytes("/health", None))
        data = b""
        while piece := sock.recv(1 << 16):
            data += piece
    assert data.count(b"HTTP/1.1 200") == 41
    assert data.count(b"[DONE]") == 40
    assert data.endswith(b"{}")


@pytest.mark.parametrize(("sent", "status"), [
    (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 50_000, 431),
    (b"GET /" + b"a" * 300_000, 431),
    (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n" + b"a" * (70 << 20), 413),
    (b"\x16\x03\x01 not http\r\n\r\n", 400),
])
def test_what_a_client_may_send_is_bounded(quick: MockServer, sent: bytes, status: int) -> None:
    with connect(quick.url) as sock:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it was refused before all was sent
            sock.sendall(sent)
        try:
            reply = sock.recv(100)
        except ConnectionResetError:
            reply = b""
    assert reply == b"" or reply.split()[1] == str(status).encode()
    assert ask(quick.url, "/health").status == 200


@pytest.mark.parametrize("first", [1, 1 << 10, 60_000, 200_000, 299_000])
def test_headers_are_bounded_however_they_are_cut(first: int) -> None:
    transport = Wire()
    connection = MockConnection(NullHandler())
    connection.connection_made(transport)
    sent = b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 50_000
    for piece in (sent[:first], sent[first:]):
        if not transport.closed:
            connection.data_received(piece)
    assert transport.written.split()[1] == b"431"


class NullHandler:
    """Is never asked."""

    connect_s = 0.0

    def handle(self, connection: MockConnection, request: MockRequest) -> None:
        raise AssertionError(request)

    def resume(self, service: Any) -> None:
        raise AssertionError(service)


class Wire(asyncio.Transport):
    """Keeps what was written."""

    written, closed = b"", False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.mark.serial
def test_tokens_keep_to_the_schedule(slots: MockServer) -> None:
    """Medians, so that single wake-ups that come late on a busy machine do not matter; what bounds them from below is
    exact."""
    slots.reset()
    answers = [complete(slots.url, max_tokens=20) for _ in range(3)]
    at = [moment for answer in answers for moment in answer.when(b'"text":" t')]
    due = [0.04 + 0.02 * i for i in range(20)] * 3
    late = [a - b for a, b in zip(at, due, strict=True)]
    assert min(late) >= 0
    assert median(late) < 0.005
    served = slots.requests()
    assert [one.request for one in served] == [0, 1, 2]
    assert all(one.arrived_s == one.started_s for one in served)
    assert all(one.due_first_s == pytest.approx(one.arrived_s + 0.04) for one in served)
    assert all(one.first_s - one.due_first_s >= 0 for one in served)


def test_beyond_the_slots_requests_wait_in_line(slots: MockServer) -> None:
    slots.reset()
    answers = together(6, lambda: complete(slots.url, max_tokens=4))
    assert [answer.status for answer in answers] == [200] * 6
    served = sorted(slots.requests(), key=lambda one: one.request)
    service = 0.04 + 3 * 0.02
    for one, later in zip(served, served[2:], strict=False):
        # A freed slot is handed on at the time of the script, not when the server noticed.
        assert later.started_s == pytest.approx(one.started_s + service, abs=1e-9)
    spread = served[-1].arrived_s - served[0].arrived_s
    last = max(answer.when(b'"text":" t0"')[0] for answer in answers)
    assert last >= 2 * service + 0.04 - spread


def test_the_line_moves_on_when_clients_leave(slots: MockServer) -> None:
    slots.reset()
    leaving = [connect(slots.url) for _ in range(4)]
    for sock in leaving:
        sock.sendall(request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 900, "stream": True}))
    until = time.monotonic() + 10
    while _gauges(slots) != (2, 2) and time.monotonic() < until:
        time.sleep(0.01)
    running, waiting = _gauges(slots)
    assert (running, waiting) == (2, 2)
    for sock in leaving:
        sock.close()
    assert complete(slots.url, max_tokens=2).lines[-1] == "data: [DONE]"
    assert sorted(one.outcome for one in slots.requests()) == ["gone"] * 4 + ["ok"]
    assert _gauges(slots) == (0, 0)


def _gauges(server: MockServer) -> tuple[float, ...]:
    found = _samples(server)
    return found["vllm:num_requests_running"], found["vllm:num_requests_waiting"]


def _samples(server: MockServer) -> dict[str, float]:
    text = ask(server.url, "/metrics").body.decode()
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
            if "le" not in sample.labels}


def test_metrics_add_up(slots: MockServer) -> None:
    slots.reset()
    complete(slots.url, max_tokens=5)
    complete(slots.url, max_tokens=3, stream=False)
    found = _samples(slots)
    assert found["vllm:generation_tokens_total"] == 8
    assert found["vllm:prompt_tokens_total"] == found["vllm:prefix_cache_queries_total"] == 6
    assert found["vllm:prefix_cache_hits_total"] == 2
    assert found["vllm:time_to_first_token_seconds_count"] == 1
    assert found["vllm:inter_token_latency_seconds_count"] == 4
    streamed = slots.requests()[0]
    assert found["vllm:inter_token_latency_seconds_sum"] == pytest.approx(streamed.last_s - streamed.first_s)
    assert found["vllm:time_to_first_token_seconds_sum"] == pytest.approx(streamed.first_s - streamed.arrived_s)
    assert found["vllm:e2e_request_latency_seconds_count"] == 2


def test_a_slow_reader_holds_up_no_one_else() -> None:
    with MockServer({"output_tokens": 100_000}) as server, connect(server.url) as slow:
        slow.sendall(request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 100_000, "stream": True}))
        slow.recv(10)
        assert complete(server.url, max_tokens=3).lines[-1] == "data: [DONE]"
        assert [one.tokens for one in server.requests()] == [3]
        size = 10
        while piece := slow.recv(1 << 20):
            size += len(piece)
        assert size > 100_000 * 100
        assert [one.tokens for one in server.requests()] == [3, 100_000]


def test_faults() -> None:
    faults = [{"kind": "status", "every": 4, "status": 503}, {"kind": "event", "every": 3, "after_tokens": 2},
              {"kind": "cut", "every": 2, "after_tokens": 1}]
    with MockServer({"faults": faults, "itl": {"kind": "constant", "ms": 30}}) as server:
        answers = [complete(server.url, max_tokens=3) for _ in range(4)]
        assert answers[0].lines[-1] == "data: [DONE]"
        assert b" t0" in answers[1].body
        assert b" t1" not in answers[1].body
        assert answers[1].reset
        assert "error" in answers[2].events[2]
        assert answers[3].status == 503
        whole = [complete(server.url, max_tokens=3, stream=False) for _ in range(4)]
        assert whole[0].status == 200
        assert whole[1].status == 500  # number 5, the sixth: the event's and the cut's turn, of which the first counts
        assert whole[3].status == 503
        outcomes = [one.outcome for one in server.requests()]
        assert outcomes == ["ok", "cut", "error", "error", "ok", "error", "ok", "error"]


def test_connections_read_late_and_odd_forms_on_the_wire() -> None:
    stream = {"crlf": True, "split_bytes": 90, "split_gap_ms": 3, "comment_every_ms": 20, "done_delay_ms": 100}
    script = {"start": {"connect_ms": 150}, "ttft": {"kind": "constant", "ms": 50}, "stream": stream}
    with MockServer(script) as server:
        answer = complete(server.url, max_tokens=2)
        assert [one["choices"][0]["text"] for one in answer.events] == [" t0", " t1"]
        assert answer.lines.count(": keep-alive") >= 5
        assert b"data: [DONE]\r\n\r\n" in answer.body
        assert answer.pieces[0][0] - answer.asked_s >= 0.15
        assert len(answer.pieces) > 5
        (one,) = server.requests()
        assert one.ended_s - one.last_s >= 0.09  # a late first token shortens it


def test_what_cannot_be_served_is_stated(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="slot"):
        MockServer({"slot": 1})
    script = tmp_path / "s.json"
    script.write_text("{}")
    with MockServer(script) as server, pytest.raises(DrutError, match="cannot listen"):
        serve_script(script, "127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "and interrupts are as they were"
    taken: dict[str, Any] = {"host": "203.0.113.1"}  # an address without a host
    with pytest.raises(DrutError, match="did not start"), MockServer(parse_script({}), **taken):
        pass


def test_a_script_is_served_until_told_to_stop(tmp_path: Path) -> None:
    script = tmp_path / "s.toml"
    script.write_text('model = "filed"')
    code = f"from drut.bench.mock import serve_script; serve_script({str(script)!r}, '127.0.0.1', 0)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        name, url = process.stderr.readline().strip().split(" at ")
        assert name == "filed"
        assert ask(url, "/health").status == 200
        process.terminate()
        assert process.wait(20) == 0
