"""Runs that end before their time, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drut.bench.load import halt
from drut.bench.load.fleet import ClosedLoop, OpenLoop
from drut.bench.load.schedule import ArrivalRate, Schedule
from drut.bench.load.wire import MeasureWindow
from tests.bench.load.test_fleet import ran, sessions
from tests.bench.scripted import Request, ScriptedServer, tokens


def begun(url: str, out: Path, *flags: str) -> subprocess.Popen[str]:
    """A long run in a process of its own."""
    work = out / "w.jsonl"
    work.write_text('{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}\n')
    return subprocess.Popen(
        [sys.executable, "-c", "from drut.cli.main import entry; entry()", "bench", "serve", "--url", url, "--model",
         "m", "--workload", f"jsonl:path={work}", "--rate", "20", "--duration", "60", "--no-metrics", "--workers", "2",
         "--out", str(out), *flags], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(server: ScriptedServer, requests: int) -> None:
    until = time.monotonic() + 30
    while len(server.requests) < requests:
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_what_was_measured(tmp_path: Path, number: signal.Signals) -> None:
    with ScriptedServer(tokens(3, 0.01)) as server:
        process = begun(server.url, tmp_path, "--warmup", "0")
        wait_for(server, 20)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    data = json.loads((tmp_path / "result.json").read_text())
    assert "interrupted" in data["validity"]["reasons"]
    assert "void: interrupted" in out
    assert 0.5 < data["summary"]["window_s"] < 30
    assert data["summary"]["requests"] >= 15
    assert {q.get("failure") for q in data["requests"]} <= {None, "unfinished"}


def test_an_interrupted_warm_up_leaves_nothing(tmp_path: Path) -> None:
    with ScriptedServer(tokens(3, 0.01)) as server:
        process = begun(server.url, tmp_path, "--warmup", "60")
        wait_for(server, 3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"w.jsonl"}


@pytest.mark.slow
def test_the_second_signal_ends_a_run_whose_processes_do_not(tmp_path: Path) -> None:
    with ScriptedServer(tokens(3, 0.01)) as server:
        process = begun(server.url, tmp_path, "--warmup", "0")
        wait_for(server, 20)  # the load has begun: before it, one signal is enough
        for worker in children(process.pid):
            os.kill(worker, signal.SIGSTOP)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.slow
def test_without_a_parent_no_server_is_loaded(tmp_path: Path) -> None:
    with ScriptedServer(tokens(3, 0.01)) as server:
        process = begun(server.url, tmp_path)
        wait_for(server, 3)
        workers = children(process.pid)
        assert len(workers) == 2
        process.kill()
        process.communicate()
        until = time.monotonic() + 20
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            assert time.monotonic() < until
            time.sleep(0.05)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def refuses(request: Request) -> None:
    await request.json({"error": "no model"}, 503)


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("loop", [ClosedLoop(30), OpenLoop(Schedule(ArrivalRate.steady(100.0)))])
def test_a_run_in_which_all_fails_is_ended(loop: ClosedLoop | OpenLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halt, "HOPELESS_S", 0.5)
    with ScriptedServer(refuses) as server:
        load = ran(server.url, loop, MeasureWindow(0.0, 60.0, 60.0), sessions(), 2)
    assert load.halted is not None
    assert "requests all failed, for example: status 503" in load.halted
    assert 0.5 <= load.window.end < 30
    assert not load.behind
    assert min(load.cpu) > 0


@pytest.mark.usefixtures("virtual_time")
def test_a_run_in_which_some_is_well_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halt, "HOPELESS_S", 0.3)

    async def once(request: Request) -> None:
        await (tokens(1) if request is server.requests[0] else refuses)(request)

    with ScriptedServer(once) as server:
        load = ran(server.url, ClosedLoop(30), MeasureWindow(0.0, 1.0, 1.0), sessions())
    assert load.halted is None
