"""An engine's process as the driver sees it: asked by JSON lines, stopped between its turns, its threads pinned.

Each is the leader of a session of its own; all processes of that session are stopped and counted with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
_PR_SET_PDEATHSIG = 1
_TICK = os.sysconf("SC_CLK_TCK")


class EngineError(Exception):
    """An engine's process ended or did not answer; the message has the end of its log."""


class EngineProcess:
    """Runs `module` under `python` with stderr in `log`. Runnable until `pause`; `resume` before the next question."""

    def __init__(self, python: Path, module: str, log: Path, cwd: Path, env: Mapping[str, str],
                 cpus: Sequence[int], niceness: int = 0) -> None:
        self.log, self._cpus, self._niceness, self._paused = log, list(cpus), niceness, False
        environ = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "DRUT_ISA", "DRUT_THREADS")}
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [python, "-m", module], cwd=cwd, env={**environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=stderr, start_new_session=True, preexec_fn=self._prepare)

    def _prepare(self) -> None:
        """In the child: its CPUs, and an end with the driver's, which a stopped process would outlive."""
        os.nice(self._niceness)
        os.sched_setaffinity(0, self._cpus)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def ask(self, do: str, timeout_s: float, **arguments: Any) -> Answer:
        """The answer to one request. EngineError where none comes within `timeout_s`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            self.kill()
            raise EngineError(f"no answer to {do!r} within {timeout_s:.0f} s\n{self._tail()}")
        line = self._process.stdout.readline()
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self.kill()
            raise EngineError(f"ended in {do!r} ({self._process.returncode})\n{self._tail()}")
        answer: Answer = json.loads(line)
        return answer

    def members(self) -> list[int]:
        """Ids of the processes of this session."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()
                and _stat(entry)[3:4] == [str(self._process.pid)]]

    def cpu_s(self) -> float:
        """CPU seconds that the session's processes have used."""
        stats = [_stat(Path(f"/proc/{pid}")) for pid in self.members()]
        return sum(int(ticks) for stat in stats for ticks in stat[11:13]) / _TICK

    def memory_mb(self) -> float:
        """Resident memory of the session's processes; pages that several share count for each."""
        pages = sum(int(field) for pid in self.members() for field in _stat(Path(f"/proc/{pid}"))[21:22])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def pause(self) -> None:
        """Stop all processes, so that none takes time from another engine's turn."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let them run on."""
        self._signal(signal.SIGCONT)
        self._paused = False

    def thread_ticks(self) -> dict[int, int]:
        """Thread -> the clock ticks of CPU time it has used."""
        return {int(task.name): sum(int(ticks) for ticks in _stat(task)[11:13])
                for pid in self.members() for task in _tasks(pid)}

    def pin(self, before: Mapping[int, int]) -> str:
        """Bind the threads busiest since `before` (of `thread_ticks`) to a CPU each. Who bound them, in a word.

        Those that the engine bound stay where they are: it may count on that.
        """
        used = {thread: ticks - before.get(thread, 0) for thread, ticks in self.thread_ticks().items()}
        busiest = sorted(used, key=lambda thread: -used[thread])[: len(self._cpus)]
        try:
            bound = {cpu for thread in busiest if len(mask := os.sched_getaffinity(thread)) == 1 for cpu in mask}
            free = [thread for thread in busiest if len(os.sched_getaffinity(thread)) > 1]
            for thread, cpu in zip(free, [c for c in self._cpus if c not in bound], strict=False):
                os.sched_setaffinity(thread, {cpu})
        except OSError as error:
            return f"nobody ({error.strerror})"
        return "itself" if not free else "the driver" if not bound else "itself and the driver"

    def close(self, patience_s: float = 10.0) -> None:
        """Let the engine end, by force where it does not."""
        if self._paused:
            self.resume()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.kill()

    def kill(self) -> None:
        """End all processes of the session now."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        end = time.monotonic() + 5
        while self.members() and time.monotonic() < end:
            time.sleep(0.05)

    def _signal(self, number: int) -> None:
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _tail(self, lines: int = 6) -> str:
        text = self.log.read_text(errors="replace").strip().splitlines()[-lines:]
        return "\n".join(f"    {line[:300]}" for line in text)


def _stat(folder: Path) -> list[str]:
    """The fields of a process's or thread's `stat` after the name, from the state on; nothing where it is gone."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
