"""More than it can take: a burst of requests, and readers who do not read."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.server.faults.process import ENDLESS, ServerProcess, write_model
from tests.server.rig import PATIENCE_S, until

BURST = 1280
SLOW_READERS = 50


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = write_model(tmp_path_factory.mktemp("load"))
    with ServerProcess(path, "--max-seqs", "64", "--kv-cache-gb", "0.2", "--max-backlog-kb", "64",
                       "--write-timeout-s", "5") as running:
        yield running


async def asked(address: tuple[str, int], number: int, go: asyncio.Event) -> tuple[int, bytes]:
    """The status of one request's reply, and the reply; all are sent when `go` is set."""
    await go.wait()
    reader, writer = await asyncio.open_connection(*address)
    body = json.dumps({"prompt": f"request {number}", "max_tokens": 2, "ignore_eos": True}).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    try:
        reply = await reader.read()
    finally:
        writer.close()
    return int(reply.split(b" ", 2)[1]), reply


async def burst(server: ServerProcess) -> list[tuple[int, bytes]]:
    go = asyncio.Event()
    tasks = [asyncio.create_task(asked(server.address, i, go)) for i in range(BURST)]
    await asyncio.sleep(0)
    go.set()
    return await asyncio.wait_for(asyncio.gather(*tasks), 10 * PATIENCE_S)


@pytest.mark.slow
def test_a_burst_loses_no_request(process: ServerProcess) -> None:
    """ray#54070: it blocked the health probe as well, and the healthy server was killed."""
    delays, over = [0.0], threading.Event()

    def probe() -> None:
        while not over.is_set():
            begun = time.monotonic()
            assert process.get("/health").status == 200
            delays.append(time.monotonic() - begun)
            over.wait(0.05)

    watcher = threading.Thread(target=probe)
    watcher.start()
    replies = asyncio.run(burst(process))
    over.set()
    watcher.join()
    counts = Counter(status for status, _ in replies)
    assert counts.keys() <= {200, 429, 503}, counts
    assert sum(counts.values()) == BURST
    assert counts[200] >= 64
    assert all(b"retry-after: " in reply for status, reply in replies if status != 200)
    assert sorted(delays)[len(delays) // 2] < 2  # the machine may starve a few of them
    process.until_idle()


def read_one(server: ServerProcess) -> None:
    """A stream of 600 tokens, as fast as it comes."""
    reply = server.post("/v1/completions", ENDLESS | {"max_tokens": 600, "return_token_ids": True})
    assert reply.events[-1] == "[DONE]"
    assert sum(len(e["choices"][0]["token_ids"]) for e in reply.events[:-1]) == 600


@pytest.mark.slow
def test_clients_that_do_not_read_are_cut_off_and_harm_no_other(process: ServerProcess) -> None:
    """opencti#13908: what waited for them took all memory."""
    def rss_mb() -> float:
        return psutil.Process(process.process.pid).memory_info().rss / 1e6

    fields: dict[str, Any] = ENDLESS | {"logprobs": 20, "max_tokens": 20_000}
    read_one(process)
    before = rss_mb()
    slow = [process.open_stream("/v1/completions", fields, rcvbuf=4096) for _ in range(SLOW_READERS)]
    until(lambda: process.metric("vllm:num_requests_running") >= SLOW_READERS // 2)
    for _ in range(3):  # a fast reader beside them gets all of its answer
        read_one(process)
    peak = rss_mb()
    until(lambda: sum(line["finish_reason"] == "abort" for line in process.log) >= SLOW_READERS, 3 * PATIENCE_S)
    assert max(peak, rss_mb()) - before < 200
    process.until_idle()
    assert all(cut_off(sock) for sock in slow)
    assert process.complete("well", max_tokens=2).status == 200


def cut_off(sock: socket.socket) -> bool:
    """Whether what came is no whole answer."""
    got = b""
    try:
        while part := sock.recv(1 << 16):
            got += part
    except ConnectionError:
        pass
    finally:
        sock.close()
    return b"[DONE]" not in got
