"""Starts a `drut serve` for a script, and loads it with the load client."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from drut.bench.report.files import read
from drut.bench.result.schema import Result
from drut.bench.server_side.page import fetch

START_S, END_S = 120.0, 60.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """A server that is ready."""

    url: str
    pid: int
    model: str  # its name for clients

    @property
    def engine(self) -> int:
        """Returns the process id of the engine, or the server's own if the engine is a thread of it."""
        children = [int(p) for task in Path(f"/proc/{self.pid}/task").iterdir()
                    for p in (task / "children").read_text().split()]
        return children[0] if children else self.pid

    def metrics(self) -> str:
        return fetch(f"{self.url}/metrics", 30.0)


PACED = """
import sys, time
from drut.cli.main import entry
from drut.engine.step.runner import Runner
real, step_s = Runner._run, float(sys.argv.pop(1))
def run(*arguments):
    time.sleep(step_s)
    return real(*arguments)
Runner._run = run
entry()
"""


@contextlib.contextmanager
def served(model: str, *flags: str, step_s: float = 0.0) -> Iterator[Server]:
    """Runs a server until the end of the block. It serves the model under the name `m`.

    With `step_s` its engine, in a thread, sleeps that long before each step: with a tiny model its speed is then known,
    independent of the machine's load.
    """
    program = ["-c", PACED, str(step_s)] if step_s else ["-m", "drut"]
    command = [sys.executable, *program, "serve", model, "--port", "0", "--served-model-name", "m", "--no-request-log",
               *(["--engine", "thread", "--multi-step", "1"] if step_s else []), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        url = _line(process.stderr, "listening on").split()[2].rstrip(",")
        _line(process.stderr, "ready after")
        threading.Thread(target=_swallow, args=(process.stderr,), daemon=True).start()
        yield Server(url, process.pid, "m")
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _line(stream: IO[str], part: str) -> str:
    """Returns the next line that contains `part`."""
    for line in stream:
        if part in line:
            return line
    raise SystemExit("the server did not start")


def _swallow(stream: IO[str]) -> None:
    """Reads the rest of its output, and shows warnings."""
    for line in stream:
        if "WARNING" in line or "ERROR" in line:
            sys.stderr.write(line)


def bench(server: Server, *flags: str, body: dict[str, Any] | None = None) -> Result:
    """Runs `drut bench serve`; the result may be void."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "drut", "bench", "serve", "--url", server.url, "--model", server.model,
                   "--out", folder, "--quiet", "--body", json.dumps(body or {}), *flags]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode not in (0, 3):
            raise SystemExit(f"the load client ended with {done.returncode}")
        return read(Path(folder) / "result.json")


def cpu_s(pid: int) -> float:
    """Returns the user and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS

