"""What an engine that dies, hangs or fails does to those who wait for it, over HTTP and in both modes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.server.faults.process import ENDLESS, ServerProcess, write_model
from tests.server.rig import Client, Reply, until

MODES = ["process", "thread"]
Faulty = Callable[[ServerProcess], None]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("faults"))


class Asking:
    """Requests under way, each in a thread: three streams and one whole answer, or what is given."""

    def __init__(self, client: Client, bodies: list[dict[str, Any]] | None = None) -> None:
        self.replies: dict[int, Reply] = {}
        bodies = bodies or [ENDLESS, ENDLESS, ENDLESS, ENDLESS | {"stream": False}]
        self._threads = [threading.Thread(target=self._ask, args=(client, i, body)) for i, body in enumerate(bodies)]
        for thread in self._threads:
            thread.start()

    def _ask(self, client: Client, number: int, body: dict[str, Any]) -> None:
        self.replies[number] = client.post("/v1/completions", body)

    def all(self) -> list[Reply]:
        """Once each has ended; none may hang."""
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a request hangs"
        return [self.replies[i] for i in range(len(self._threads))]


def assert_failed(replies: list[Reply], status: int, code: str) -> None:
    """Streams end with an error event and no [DONE], a whole answer is an error; and with them all else."""
    *streams, whole = replies
    for reply in streams:
        assert (reply.status, reply.events[-1]["error"]["code"]) == (200, code)
        assert len(reply.events) > 1
    assert (whole.status, whole.error["code"]) == (status, code)


def running(server: ServerProcess, count: int) -> None:
    until(lambda: server.metric("vllm:num_requests_running") == count)


@pytest.mark.slow
def test_a_killed_engine_ends_all_and_the_server(path: Path) -> None:
    """vllm#39863: it was not detected, and requests waited for ever."""
    with ServerProcess(path) as server:
        asking = Asking(server)
        running(server, 4)
        assert server.engine is not None
        os.kill(server.engine, signal.SIGKILL)
        assert_failed(asking.all(), 503, "engine_dead")
        assert server.wait() == 1
        assert {line["finish_reason"] for line in server.log} == {"error"}
        assert all("ended with code -9" in line["error"] for line in server.log)


@pytest.mark.slow
def test_a_stopped_engine_is_given_up(path: Path) -> None:
    with ServerProcess(path, "--stuck-s", "2", "--keep-alive-s", "0.2") as server:
        asking = Asking(server)
        running(server, 4)
        engine = server.engine
        assert engine is not None
        os.kill(engine, signal.SIGSTOP)
        replies = asking.all()
        assert_failed(replies, 503, "engine_dead")
        assert all(reply.raw.count(b": keep-alive") for reply in replies[:3])  # silent, not dead, meanwhile
        assert server.wait() in (1, 70)  # the latter where the machine is too busy to end in time
        assert "a step of the engine has been stuck for 2 s" in server.stderr
        until(lambda: not psutil.pid_exists(engine))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow
def test_a_step_that_fails_ends_its_requests_alone(path: Path, tmp_path: Path, mode: str) -> None:
    trigger = tmp_path / "break"
    with ServerProcess(path, "--engine", mode, BREAK_A_STEP=str(trigger)) as server:
        before = server.complete("hello", max_tokens=20, temperature=0).json
        asking = Asking(server)
        running(server, 4)
        trigger.touch()
        assert_failed(asking.all(), 500, "internal_error")
        after = server.complete("hello", max_tokens=20, temperature=0).json
        assert after["choices"] == before["choices"]
        assert server.get("/ready").status == 200
        server.until_idle()
        assert server.metric("drut_failed_steps_total") == 1
        assert "a wheel came off" in server.stderr
        assert [line["finish_reason"] for line in server.log].count("error") == 4
        assert server.stop() == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow
def test_a_server_that_is_stopped_and_continued_has_lost_nothing(path: Path, mode: str) -> None:
    with ServerProcess(path, "--engine", mode, "--stuck-s", "1") as server:
        asking = Asking(server, [ENDLESS | {"max_tokens": 20_000}] * 2)
        running(server, 2)
        everyone = [server.process.pid, *([server.engine] if server.engine else [])]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(2)
        for pid in reversed(everyone):
            os.kill(pid, signal.SIGCONT)
        assert all(reply.events[-1] == "[DONE]" for reply in asking.all())
        assert server.stop() == 0
