"""What a stream does when the engine is silent, fails or is faster than its reader, and when the reader goes."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from drut.engine.request.output import Chunk
from drut.errors import DrutError, EngineDeadError, RequestError
from drut.server.admission import DeadlineError, DrainingError, QueuedRequest
from tests.server.rig import until
from tests.server.scripted import ended, said, scripted

ASK = {"prompt": "hi", "max_tokens": 100, "stream": True}
PATH = "/v1/completions"


async def forever(ask: QueuedRequest) -> AsyncIterator[Chunk]:
    yield said("a")
    await asyncio.Event().wait()


def test_silence_is_filled_with_comments(model_path: Path) -> None:
    async def slow(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        await asyncio.sleep(0.4)
        yield said("late")
        await asyncio.sleep(0.4)
        yield ended(" end")

    with scripted(model_path, slow, keep_alive_s=0.05) as (server, _):
        reply = server.post(PATH, ASK)
        assert reply.status == 200
        blocks = reply.raw.decode().split("\n\n")
        texts = [i for i, block in enumerate(blocks) if block.startswith("data: {")]
        assert blocks[0] == ": keep-alive"
        assert any(block == ": keep-alive" for block in blocks[texts[0] : texts[1]])
        assert "".join(e["choices"][0]["text"] for e in reply.events[:-1]) == "late end"


def test_no_comments_while_it_speaks(model_path: Path) -> None:
    async def steady(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        for _ in range(20):
            await asyncio.sleep(0.01)
            yield said("x")
        yield ended()

    with scripted(model_path, steady, keep_alive_s=30) as (server, _):
        assert b": keep-alive" not in server.post(PATH, ASK).raw


FAILURES: list[tuple[Exception, int, str | None]] = [
    (RequestError("top_k is wrong"), 400, None),
    (DrutError("/secret/path failed"), 500, "internal_error"),
    (ValueError("<object at 0x7f>"), 500, "internal_error"),
    (EngineDeadError("the engine process ended with code -9"), 503, "engine_dead"),
    (DrainingError("over"), 503, "shutting_down"),
    (DeadlineError("it was not finished within 3 s"), 504, "deadline_exceeded"),
]


@pytest.mark.parametrize(("failure", "status", "code"), FAILURES, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_first_chunk_has_its_own_status(
    model_path: Path, failure: Exception, status: int, code: str | None, stream: bool
) -> None:
    async def failing(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        raise failure
        yield

    with scripted(model_path, failing) as (server, _):
        reply = server.post(PATH, ASK | {"stream": stream})
        assert (reply.status, reply.error["code"]) == (status, code)
        assert "secret" not in reply.error["message"]


@pytest.mark.parametrize("failure", [f[0] for f in FAILURES], ids=lambda v: type(v).__name__)
def test_a_failure_in_mid_stream_is_an_event_and_no_done(model_path: Path, failure: Exception) -> None:
    async def failing(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield said("so far")
        await asyncio.sleep(0.05)
        raise failure

    with scripted(model_path, failing) as (server, _):
        *before, last = server.post(PATH, ASK).events
        assert "".join(e["choices"][0]["text"] for e in before) == "so far"
        assert set(last["error"]) == {"message", "type", "param", "code"}
        whole = server.post(PATH, ASK | {"stream": False})
        assert whole.status >= 400
        assert whole.json == last


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["hi", ["a", "b", "c"]])
def test_a_client_that_goes_away_ends_its_request(model_path: Path, stream: bool, prompt: Any) -> None:
    with scripted(model_path, forever) as (server, admission):
        sock = server.open_stream(PATH, ASK | {"stream": stream, "prompt": prompt})
        if stream:
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
        until(lambda: len(admission.tickets) == (1 if prompt == "hi" else 3))
        assert not any(t.cancelled for t in admission.tickets)
        sock.close()
        until(lambda: all(t.cancelled for t in admission.tickets))


def test_a_failed_prompt_takes_the_others_along(model_path: Path) -> None:
    async def one_fails(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        if ask.prompt == [98]:
            raise DrutError("no")
        async for chunk in forever(ask):
            yield chunk

    with scripted(model_path, one_fails) as (server, admission):
        assert server.post(PATH, {"prompt": ["a", "b"]}).status == 500
        until(lambda: admission.tickets[0].cancelled)


def test_a_chunk_that_cannot_be_read_fails_its_request_alone(model_path: Path) -> None:
    """The engine's messages to other requests come next in the same callback, so it must not raise."""
    async def odd(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield said("x", index=7)
        await asyncio.Event().wait()

    with scripted(model_path, odd) as (server, admission):
        for stream in (False, True):
            assert server.post(PATH, ASK | {"stream": stream}).status == 500
        until(lambda: all(t.cancelled and t._player.cancelled() for t in admission.tickets))


async def flood(ask: QueuedRequest) -> AsyncIterator[Chunk]:
    for _ in range(100_000):
        yield said("x" * 100)
        await asyncio.sleep(0)
    yield ended()


def test_a_reader_that_never_reads_is_cut_off(model_path: Path) -> None:
    with scripted(model_path, flood, sndbuf=4096, max_backlog_kb=100) as (server, admission):
        sock = server.open_stream(PATH, ASK, rcvbuf=4096)
        until(lambda: bool(admission.tickets) and admission.tickets[0].cancelled)
        got = b""
        with suppress(ConnectionResetError):
            while part := sock.recv(65536):
                got += part
        assert not got.endswith(b"0\r\n\r\n")  # nobody takes this for a whole answer
        assert server.get("/health").status == 200


def test_a_reader_that_takes_nothing_for_long_is_cut_off(model_path: Path) -> None:
    async def much(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield Chunk("x" * 8_000_000, [120])
        await asyncio.Event().wait()

    async def whole(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield Chunk("x" * 8_000_000, [120])
        yield ended()

    with scripted(model_path, much, max_backlog_kb=100_000, write_timeout_s=0.2) as (server, admission):
        sock = server.open_stream(PATH, ASK, rcvbuf=4096)
        until(lambda: bool(admission.tickets) and admission.tickets[0].cancelled)
        admission.script = whole
        other = server.open_stream(PATH, ASK | {"stream": False}, rcvbuf=4096)
        until(lambda: len(server.server._http.server_state.connections) == 0)
        sock.close()
        other.close()


def test_a_reader_that_takes_a_little_is_not(model_path: Path) -> None:
    async def whole(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield Chunk("x" * 1_000_000, [120])
        yield ended()

    with scripted(model_path, whole, sndbuf=4096, write_timeout_s=0.5) as (server, _):
        sock, got = server.open_stream(PATH, ASK | {"stream": False}, rcvbuf=4096), 0
        begun = time.monotonic()
        while got < 1_000_000:
            part = len(sock.recv(65536))
            assert part
            got += part
            time.sleep(0.02 if time.monotonic() - begun < 1.5 else 0)


def test_a_slow_reader_gets_all_in_fewer_events(model_path: Path) -> None:
    async def burst(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        for i in range(3000):
            yield said(f"{i:04d}" * 25)
            await asyncio.sleep(0)
        yield ended()

    with scripted(model_path, burst, sndbuf=4096, max_backlog_kb=10_000) as (server, _):
        sock = server.open_stream(PATH, ASK | {"max_tokens": 100}, rcvbuf=4096)
        time.sleep(0.3)
        events = read_events(sock)
        assert "".join(e["choices"][0]["text"] for e in events) == "".join(f"{i:04d}" * 25 for i in range(3000))
        assert len(events) < 2000  # a third and more of them were merged


def read_events(sock: socket.socket) -> list[Any]:
    data = b""
    while part := sock.recv(65536):
        data += part
        if data.endswith(b"[DONE]\n\n\r\n0\r\n\r\n"):
            break
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


def test_choices_of_one_step_are_one_write(model_path: Path) -> None:
    async def together(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        for i in range(3):
            yield said("x", i)
        await asyncio.sleep(0.1)
        for i in range(3):
            yield ended("y", i)

    with scripted(model_path, together) as (server, _):
        sock = server.open_stream(PATH, ASK | {"n": 3})
        data = b""
        while b"0\r\n\r\n" not in data:
            data += sock.recv(65536)
        chunks = [c for c in data.partition(b"\r\n\r\n")[2].split(b"\r\n") if b"data:" in c]
        assert [c.count(b"data: {") for c in chunks] == [3, 3]


def test_the_engine_hears_priority_salt_deadline_and_a_name_of_its_own(model_path: Path) -> None:
    async def at_once(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield ended("x")

    with scripted(model_path, at_once) as (server, admission):
        for _ in range(2):
            reply = server.post(PATH, ASK | {"stream": False, "priority": -3, "cache_salt": "s", "deadline_s": 5},
                                headers={"X-Request-Id": "mine"})
            assert reply.headers["x-request-id"] == "mine"
        first, second = admission.asks
        assert (first.priority, first.salt, first.deadline_s, first.prompt) == (-3, "/s", 5, [104, 105])
        assert "mine" not in (first.id, second.id)
        assert first.id != second.id
        assert first.arrived is not None
