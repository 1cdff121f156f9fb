"""Signals, dead engines and stuck steps, each to its end, on a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import tiny

ENDLESS = 90_000  # tokens: none of the tests takes so long


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("life") / "long.gguf"
    file.write_bytes(tiny.model(llama__context_length=100_000))
    return file


class Served:
    """The process of tests/server/life/served.py."""

    def __init__(self, model: Path, **options: Any) -> None:
        options = {"process": True, "tokens": ENDLESS, **options}
        command = [sys.executable, "-m", "tests.server.life.served", str(model), json.dumps(options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.next() == {"ready": [False, "the model is loading"], "alive": True}
        self.started = self.next()
        self.engine: int | None = self.started["pid"]

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        return json.loads(line)

    def end(self, patience_s: float = 240) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, the lines that were left, and standard error. No engine process is left behind."""
        out, err = self.process.communicate(timeout=patience_s)
        if self.engine is not None:
            wait_gone(self.engine)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()], err


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 120
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "an orphan"
        time.sleep(0.05)


@pytest.fixture
def serve(path: Path) -> Iterator[Any]:
    made: list[Served] = []

    def start(**options: Any) -> Served:
        made.append(Served(path, **options))
        return made[-1]

    yield start
    for served in made:
        served.process.kill()
        served.process.wait()


@pytest.mark.parametrize("process", [True, False])
@pytest.mark.slow
def test_sigterm_lets_streams_end(serve, process: bool) -> None:
    served = serve(process=process, tokens=2500)
    assert served.started["ready"][0] in (True, False)  # the first answer may still be on its way
    served.process.send_signal(signal.SIGTERM)
    code, lines, err = served.end()
    assert code == 0, err
    assert [line["end"] for line in lines if "end" in line] == ["length"] * 3


@pytest.mark.slow
def test_sigterm_ends_streams_at_the_deadline_and_a_second_one_at_once(serve) -> None:
    """The engine is stopped, so that nothing ends by itself."""
    served = serve(drain_s=0.5)
    os.kill(served.engine, signal.SIGSTOP)
    served.process.send_signal(signal.SIGTERM)
    lines = [served.next() for _ in range(4)]
    os.kill(served.engine, signal.SIGCONT)
    code, rest, _ = served.end()
    assert code == 0
    assert {"ready": [False, "the server is shutting down"], "alive": True} in lines
    assert [line["end"] for line in [*lines, *rest] if "end" in line] == ["DrainingError"] * 3

    served = serve(drain_s=1000)
    os.kill(served.engine, signal.SIGSTOP)
    served.process.send_signal(signal.SIGTERM)
    assert served.next()["ready"] == [False, "the server is shutting down"]
    served.process.send_signal(signal.SIGTERM)
    lines = [served.next() for _ in range(3)]
    os.kill(served.engine, signal.SIGCONT)
    assert served.end()[0] == 1
    assert [line["end"] for line in lines] == ["DrainingError"] * 3


def test_a_killed_engine_ends_streams_and_server(serve) -> None:
    served = serve()
    os.kill(served.engine, signal.SIGSTOP)  # so that no stream ends before
    os.kill(served.engine, signal.SIGKILL)
    code, lines, _ = served.end()
    assert code == 1
    assert [line["end"] for line in lines if "end" in line] == ["EngineDeadError"] * 3
    (state,) = [line for line in lines if "alive" in line]
    assert state == {"ready": [False, "the engine process ended with code -9"], "alive": False}


def test_a_killed_server_leaves_no_engine_not_even_a_stopped_one(serve) -> None:
    served = serve()
    os.kill(served.engine, signal.SIGSTOP)
    served.process.kill()
    wait_gone(served.engine)


@pytest.mark.slow
def test_a_stopped_engine_is_noticed(serve) -> None:
    served = serve(stuck_s=1.0)
    os.kill(served.engine, signal.SIGSTOP)
    code, lines, err = served.end()
    assert code in (1, 70)  # the latter where the machine is too busy to end within the watchdog's grace
    ends = [line for line in lines if "end" in line]
    assert [line["end"] for line in ends] == ["EngineDeadError"] * 3
    assert "a step of the engine has been stuck for 1 s" in ends[0]["why"]
    assert "Current thread" in err


@pytest.mark.slow
def test_a_stuck_step_is_shown_and_ends_the_server(serve) -> None:
    served = serve(process=False, hang_after=20, stuck_s=1.0, streams=2)
    code, lines, err = served.end()
    assert [line["end"] for line in lines if "end" in line] == ["EngineDeadError"] * 2
    assert code == 70  # the thread cannot be ended, so the watchdog ends the process
    assert "in run" in err
    assert "served.py" in err  # where it hangs


@pytest.mark.slow
def test_a_stuck_event_loop_is_shown_and_ends_the_server(serve) -> None:
    served = serve(block_loop=True, stuck_s=1.0)
    code, _, err = served.end()
    assert code == 70
    assert "the event loop has been stuck for 1 s" in err
    assert "in main" in err
