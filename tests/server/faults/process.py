"""`drut serve` as a process of its own, whose engine, files and end are in a test's hands."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.cli import tiny
from tests.server.rig import PATIENCE_S, Client, until

BROKEN = Path(__file__).parent / "broken"
CONTEXT = 100_000
ENDLESS = {"prompt": "hello", "max_tokens": 90_000, "ignore_eos": True, "stream": True}
LIMITS = {"--kv-cache-gb": "0.06", "--threads": "1"}  # enough for four endless answers of the tiny model


def write_model(directory: Path, context: int = CONTEXT) -> Path:
    """The tiny model, for answers so long that none ends by itself during a test."""
    path = directory / "long.gguf"
    path.write_bytes(tiny.model(llama__context_length=context))
    return path


class ServerProcess(Client):
    """`with ServerProcess(model, "--engine", "thread") as server`: up and ready; killed at the end if need be."""

    def __init__(self, model: Path, *args: str, **env: str) -> None:
        flags = [part for name, value in LIMITS.items() if name not in args for part in (name, value)]
        command = [sys.executable, "-m", "drut", "serve", str(model), "--port", "0", "--served-model-name", "tiny",
                   *flags, *args]
        path = os.pathsep.join([str(BROKEN), os.environ.get("PYTHONPATH", "")]) if "BREAK_A_STEP" in env else None
        env = {**os.environ, **({"PYTHONPATH": path} if path else {}), **env}
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(command, stdout=self._out, stderr=self._err, env=env)
        super().__init__("")

    def __enter__(self) -> ServerProcess:
        try:
            until(lambda: "listening on" in self.stderr or self.ended)
            assert not self.ended, self.stderr
            line = next(line for line in self.stderr.splitlines() if line.startswith("listening on"))
            self.url = line.split()[2].rstrip(",")
            until(lambda: self.get("/ready").status == 200)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in psutil.Process(self.process.pid).children() if not self.ended else []:
            child.kill()
        self.process.kill()
        self.process.wait()
        self._out.close()
        self._err.close()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def engine(self) -> int | None:
        """The engine's process; None where it is a thread."""
        children = psutil.Process(self.process.pid).children()
        return children[0].pid if children else None

    @property
    def stderr(self) -> str:
        return _text(self._err)

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in _text(self._out).splitlines()]

    def stop(self) -> int:
        """As an operator does; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def let_open(self, files: int) -> None:
        """Sets the process's limit of open files."""
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (files, self._hard_limit()))

    def _hard_limit(self) -> int:
        return resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE)[1]

    def cpu_s(self) -> float:
        """CPU time that the process, without the engine's, has used."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, of all its labels together but for those given."""
        total = 0.0
        for line in self.get("/metrics").raw.decode().splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{k}="{v}"' in head for k, v in labels.items()):
                total += float(value)
        return total

    def until_idle(self) -> None:
        """Until all pages are back. Counts come from the engine once a second."""
        until(lambda: self.metric("vllm:num_requests_running") == 0 and self.metric("vllm:num_requests_waiting") == 0
              and self.metric("drut_kv_pages", state="own") == 0)


def _text(file: Any) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def asleep(pid: int) -> float:
    """CPU seconds that `pid` uses in a second of wall time."""
    def used() -> float:
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system

    before = used()
    time.sleep(1)
    return used() - before
