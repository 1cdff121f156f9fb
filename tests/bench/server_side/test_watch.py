"""Scraping over real sockets: a good server, one without metrics, hostile ones."""

from __future__ import annotations

import dataclasses
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from drut.bench.mock import MockServer
from drut.bench.server_side import ServerWatch
from drut.bench.server_side.page import ScrapedHistogram, fetch, parse
from drut.bench.server_side.watch import metrics_urls
from drut.errors import RequestError
from tests.bench.mock.reader import complete


@contextmanager
def server(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """Answers each connection by a function of it and the request's first line."""
    listener = socket.create_server(("127.0.0.1", 0))

    def loop() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock, suppress(OSError):
                answer(sock, sock.recv(4096).split(b"\r\n")[0])

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def reply(sock: socket.socket, body: bytes, status: int = 200) -> None:
    sock.sendall(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body))


@pytest.mark.serial
def test_a_run_against_the_scripted_server() -> None:
    script = {"ttft": {"kind": "constant", "ms": 60}, "itl": {"kind": "constant", "ms": 30}, "cached_share": 0.5}
    with MockServer(script) as mock:
        complete(mock.url, max_tokens=2)  # before the run
        watch = ServerWatch(f"{mock.url}/v1", every_s=0.05)
        watch.start()
        for _ in range(3):
            complete(mock.url, max_tokens=6)
        result = watch.stop()
    assert (result.engine, result.problems, result.failed_scrapes) == ("vllm", [], 0)
    assert result.totals["generation_tokens"].total == 18
    assert result.totals["prompt_tokens"].total == 9
    assert result.totals["prefix_hit_tokens"].total == 3
    assert result.distributions["ttft"].count == 3
    assert result.distributions["ttft"].mean_ms >= 60
    assert result.distributions["itl"].count == 15
    assert result.scrapes > 2
    assert result.levels["running"].max == 1


def test_json_where_metrics_are_looked_for_first() -> None:
    def answer(sock: socket.socket, line: bytes) -> None:
        good = b"trtllm_num_requests_running 2\n"
        reply(sock, good if b"/prometheus/metrics" in line else b'[{"iter": 3}]')

    with server(answer) as url:
        watch = ServerWatch(url)
        watch.start()
        result = watch.stop()
    assert result.engine == "tensorrt-llm"
    assert result.levels["running"].max == 2


HOSTILE = """vllm:num_requests_running NaN
vllm:num_requests_waiting +Inf
vllm:prompt_tokens_total 1e308
vllm:generation_tokens_total 5
vllm:time_to_first_token_seconds_bucket{le="NaN"} 4
vllm:time_to_first_token_seconds_bucket{le="1e306"} 4
vllm:time_to_first_token_seconds_bucket{le="0.1"} 4
vllm:time_to_first_token_seconds_bucket{le="+Inf"} +Inf
vllm:time_to_first_token_seconds_sum NaN
"""


def test_samples_that_are_no_numbers_are_none() -> None:
    def finite(value: Any) -> bool:
        if isinstance(value, dict | list | tuple):
            return all(map(finite, value.values() if isinstance(value, dict) else value))
        return not isinstance(value, float) or math.isfinite(value)

    with server(lambda sock, _: reply(sock, HOSTILE.encode())) as url:
        watch = ServerWatch(url, every_s=0.02)
        watch.start()
        time.sleep(0.1)
        result = watch.stop()
    assert finite(dataclasses.asdict(result))
    assert (result.levels, result.totals.keys()) == ({}, {"generation_tokens"})
    run = parse(HOSTILE, {"vllm:time_to_first_token_seconds"}).histogram("vllm:time_to_first_token_seconds")
    assert run == ScrapedHistogram({0.1: 4.0}, 0.0)


def test_a_server_without_metrics_is_a_result_that_reports_so() -> None:
    with server(lambda sock, _: reply(sock, b"", 404)) as url:
        watch = ServerWatch(url)
        watch.start()
        result = watch.stop()
    assert result.engine is None
    assert len(result.problems) == 2
    assert f"{url}/metrics: status 404" in result.problems


def test_a_server_that_dies_in_the_run_is_a_result_that_reports_so() -> None:
    with server(lambda sock, _: reply(sock, b"vllm:num_requests_running 1\n")) as url:
        watch = ServerWatch(url, every_s=60)
        watch.start()
    result = watch.stop()
    assert (result.engine, result.failed_scrapes) == ("vllm", 1)
    assert url in result.problems[0]


def drip(sock: socket.socket, _: bytes) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    for _ in range(200):
        sock.sendall(b"x-a: b\r\n")
        time.sleep(0.05)


def endless(sock: socket.socket, _: bytes) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
    while True:
        sock.sendall(b"a 1\n" * 10_000)


@pytest.mark.parametrize(("answer", "reason"), [
    (drip, "no reply within 0.5 s"), (endless, "longer than"), (lambda sock, _: sock.sendall(b"junk\r\n"), ""),
    (lambda sock, _: time.sleep(1.5), "no reply|timed out"),
    (lambda sock, _: sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort"), "cut short"),
    (lambda sock, _: reply(sock, b"", 302), "status 302")])
def test_hostile_servers_are_bounded(answer: Callable[[socket.socket, bytes], None], reason: str) -> None:
    with server(answer) as url:
        began = time.monotonic()
        with pytest.raises(RequestError, match=f"{url}.*({reason})"):
            fetch(f"{url}/metrics", timeout_s=0.5, most_bytes=1 << 20)
        assert time.monotonic() - began < 5  # far below what the server would take


@pytest.mark.parametrize("url", ["ftp://x/metrics", "metrics", "http://:9/metrics", "http://x:port/metrics",
                                 "http://[::1/metrics", "http://u:p@h/metrics"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(RequestError):
        fetch(url, 0.5)


def test_where_metrics_are_looked_for() -> None:
    assert metrics_urls("http://h:1/v1/") == ["http://h:1/metrics", "http://h:1/prometheus/metrics"]
    assert metrics_urls("http://h:1/x/metrics") == ["http://h:1/x/metrics"]
