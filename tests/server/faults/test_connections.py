"""Connections: too many of them, too few files for them, and those whose other end is silent or gone."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from drut.config import EngineConfig
from drut.errors import RequestError
from drut.server.config import ServerConfig
from drut.server.http.gate import ConnectionGate, with_connections
from drut.server.life.serve import Server
from tests.server.faults.process import ENDLESS, ServerProcess, asleep, write_model
from tests.server.rig import Reply, Running, serving, until

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("connections"))


@pytest.fixture(scope="module")
def process(path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(path, "--head-timeout-s", "3600") as server:
        yield server


def opened(server: Running | ServerProcess, count: int) -> list[socket.socket]:
    socks = [socket.create_connection(server.address, timeout=60) for _ in range(count)]
    return socks


def health(sock: socket.socket) -> bytes:
    """The status a connection gets, or nothing where it was closed."""
    reply = http.client.HTTPResponse(sock)
    try:
        sock.sendall(HEAD + b"\r\n")
        reply.begin()
        reply.read()
        return b"%d" % reply.status
    except (ConnectionError, http.client.HTTPException):
        return b""


@pytest.mark.slow
@pytest.mark.parametrize("bomb", [b"X: " + b"a" * (64 << 20) + b"\r\n", b"X: a\r\n" * 100_000])
def test_a_head_of_64_mb_is_refused_and_costs_no_memory(process: ServerProcess, bomb: bytes) -> None:
    """CVE-2025-48956: there was no limit."""
    def rss_mb() -> float:
        return psutil.Process(process.process.pid).memory_info().rss / 1e6

    before = rss_mb()
    reply = process.raw(HEAD + bomb + b"\r\n", timeout=60)
    assert reply == b"" or reply[9:12] in (b"431", b"400"), reply[:100]
    assert rss_mb() - before < 100
    assert process.complete("well", max_tokens=2).status == 200


@pytest.mark.slow
def test_without_files_it_waits_and_then_continues(process: ServerProcess) -> None:
    early = opened(process, 1)[0]
    assert health(early) == b"200"
    process.let_open(process.open_files() + 3)
    socks = opened(process, 40)
    until(lambda: process.open_files() >= 4)
    statuses = [health(sock) for sock in socks]
    assert set(statuses) == {b"200", b""}  # closed at once, not left to wait
    assert health(early) == b"200"
    assert asleep(process.process.pid) < 0.5  # it does not turn in circles meanwhile
    for sock in socks:
        sock.close()
    until(lambda: health(opened(process, 1)[0]) == b"200")
    process.let_open(512)
    assert process.complete("well", max_tokens=2).status == 200
    assert {health(sock) for sock in opened(process, 100)} == {b"200"}


def test_above_the_limit_a_connection_gets_503(path: Path) -> None:
    with serving(path, max_connections=8, engine={"kv_cache_gb": 0.01}) as server:
        held = opened(server, 8)
        assert {health(sock) for sock in held} == {b"200"}
        with socket.create_connection(server.address, timeout=60) as sock:
            sock.sendall(HEAD + b"\r\n")
            head, _, body = b"".join(iter(lambda: sock.recv(65536), b"")).partition(b"\r\n\r\n")
        reply = Reply(int(head.split()[1]), {}, body)
        assert (reply.status, reply.error["code"]) == (503, "too_many_connections")
        assert "--max-connections" in reply.error["message"]
        assert b"retry-after: 1" in head
        assert {health(sock) for sock in held} == {b"200"}
        for sock in held:
            sock.close()
        until(lambda: health(opened(server, 1)[0]) == b"200")
        until(lambda: server.server.gate.closing == 0)
        assert server.server.gate.refused["total"] >= 1
        assert b'drut_connections_refused_total{model_name="tiny",reason="total"}' in server.get("/metrics").raw


def test_many_above_the_cap_are_dropped_and_cost_nothing(path: Path) -> None:
    with serving(path, max_connections=8, engine={"kv_cache_gb": 0.01}) as server:
        held = opened(server, 8)
        assert {health(sock) for sock in held} == {b"200"}
        others = opened(server, 200)
        assert {health(sock) for sock in others} <= {b"503", b""}
        assert len(server.server._http.server_state.connections) < 60
        held.pop().close()
        until(lambda: health(opened(server, 1)[0]) == b"200")


def test_a_gate_counts_by_address() -> None:
    gate = ConnectionGate(10, 2)
    assert [bool(gate.enter(a)) for a in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2")] == [
        False, False, True, True, False]
    assert [bool(gate.enter(f"2001:db8::{i}")) for i in range(3)] == [False, False, True]  # one network, one client
    assert [bool(gate.enter(a)) for a in ("127.0.0.1", "127.0.0.1", "::1", "127.0.0.1", "::1", "127.0.0.1")] == [
        False, False, False, False, False, True]
    assert gate.refused == {"address": 3, "total": 1}
    gate.leave("10.0.0.1")
    gate.leave("::1")
    assert not gate.enter("::ffff:10.0.0.1")
    assert not gate.enter("fe80::1%eth0")
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", *["127.0.0.1"] * 3, "::1",
                    "fe80::2"):
        gate.leave(address)
    assert (gate.open, len(gate._by_client)) == (0, 0)


def test_the_cap_leaves_room_for_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (264, 4096))
    assert with_connections(ServerConfig()).max_connections == 160
    assert with_connections(ServerConfig(max_connections=160)).max_connections == 160
    with pytest.raises(RequestError, match=r"--max-connections 161 .* 264 open files .* 160"):
        with_connections(ServerConfig(max_connections=161))
    monkeypatch.setattr("resource.getrlimit", lambda _: (60, 4096))
    with pytest.raises(RequestError, match="60 open files is too small"):
        with_connections(ServerConfig())
    monkeypatch.setattr("resource.getrlimit", lambda _: (1 << 20, 1 << 20))
    assert with_connections(ServerConfig()).max_connections == 4096


HALVES = {
    "nothing": b"", "half a head": HEAD[:20], "a head without end": HEAD,
    "half a body": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b'Content-Length: 100\r\n\r\n{"prompt": "he',
    "half a chunk": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b'Transfer-Encoding: chunked\r\n\r\nFF\r\n{"pro',
}


def test_incomplete_requests_are_cut_off_and_delay_no_other(path: Path) -> None:
    settings = {"head_timeout_s": 0.5, "body_timeout_s": 0.5, "idle_timeout_s": 1}
    with serving(path, engine={"kv_cache_gb": 0.01}, **settings) as server:
        socks = {name: opened(server, 10) for name in HALVES}
        for name, each in socks.items():
            for sock in each:
                sock.sendall(HALVES[name])
        assert server.complete("meanwhile", max_tokens=2).status == 200
        for name, each in socks.items():
            for sock in each:
                said = b"".join(iter(lambda: sock.recv(65536), b""))  # noqa: B023
                assert said[9:12] == (b"408" if "body" in name or "chunk" in name else b""), (name, said)
        idle = opened(server, 1)[0]
        assert health(idle) == b"200"
        begun = time.monotonic()
        assert idle.recv(100) == b""  # a connection nobody uses any more
        assert time.monotonic() - begun > 0.5
        until(lambda: server.server.gate.open == 0)


def test_tcp_keepalive_is_enabled(path: Path) -> None:
    config = ServerConfig.resolve({"port": 0, "tcp_keepalive_s": 8, "write_timeout_s": 3.5, "engine": "thread"}, {})
    server = Server("tiny", path, config, EngineConfig.resolve({}, {}), lambda line: None)
    with server._socket as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            options = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert [accepted.getsockopt(socket.IPPROTO_TCP, getattr(socket, o)) for o in options] == [8, 2, 4, 3500]


def vanish(sock: socket.socket) -> None:
    """Ends a connection without a word to the other side, as a machine does whose power is cut."""
    tcp_repair = 19
    try:
        sock.setsockopt(socket.IPPROTO_TCP, tcp_repair, 1)
    except PermissionError:
        pytest.skip("only the system's administrator may make a connection vanish")
    sock.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.slow
def test_a_client_that_vanishes_ends_its_request(path: Path, stream: bool) -> None:
    with ServerProcess(path, "--tcp-keepalive-s", "1", "--keep-alive-s", "3600") as server:
        sock = server.open_stream("/v1/completions", ENDLESS | {"stream": stream})
        until(lambda: server.metric("vllm:num_requests_running") == 1)
        vanish(sock)
        server.until_idle()
        assert [line["finish_reason"] for line in server.log] == ["abort"]
