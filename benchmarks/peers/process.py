"""The driver's side of an engine's process: sends requests as JSON lines, suspends it between turns, pins its
threads."""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from drut.bench.engines.guarded import Guarded, tail

Answer = dict[str, Any]


class EngineError(Exception):
    """Raised if an engine's process ended or did not answer; the text has the end of its log."""


class EngineProcess:
    """Runs `module` with `python`, with stderr in `log`. It runs until `pause`; call `resume` before the next
    request."""

    def __init__(self, python: Path, module: str, log: Path, cwd: Path, env: Mapping[str, str],
                 cpus: Sequence[int], niceness: int = 0) -> None:
        self.log, self._cpus, self._paused = log, list(cpus), False
        theirs, asking = os.pipe()
        answering, theirs_too = os.pipe()
        self._process = Guarded([str(python), "-m", module], env, log, patience_s=0.0, children_s=0.0,
                                pipes=(theirs, theirs_too), cwd=cwd, prepare=partial(_prepare, self._cpus, niceness))
        self.tree = self._process.tree
        self._questions, self._answers = os.fdopen(asking, "wb"), os.fdopen(answering, "rb")

    def ask(self, do: str, timeout_s: float, **arguments: Any) -> Answer:
        """Returns the answer to one request. Raises EngineError if none arrives within `timeout_s`."""
        with contextlib.suppress(BrokenPipeError):
            self._questions.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._questions.flush()
        if not select.select([self._answers], [], [], timeout_s)[0]:
            self.kill()
            raise EngineError(f"no answer to {do!r} within {timeout_s:.0f} s; {tail(self.log)}")
        line = self._answers.readline()
        if not line:
            code = self._process.code(5.0)
            self.kill()
            raise EngineError(f"ended in {do!r} ({code}); {tail(self.log)}")
        answer: Answer = json.loads(line)
        return answer

    def pause(self) -> None:
        """Suspends all processes, so that none takes CPU time from another engine's turn."""
        self.tree.suspend()
        self._paused = True

    def resume(self) -> None:
        """Resumes all processes."""
        self.tree.resume()
        self._paused = False

    def thread_s(self) -> dict[int, float]:
        """Returns the CPU seconds of each thread."""
        used: dict[int, float] = {}
        for process in self.tree.members():
            with contextlib.suppress(psutil.Error):
                used |= {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
        return used

    def pin(self, before: Mapping[int, float]) -> str:
        """Binds the threads with the most CPU time since `before` (a result of `thread_s`) to a CPU each. Returns who
        bound them.

        Threads bound by the engine keep their CPU, because the engine may rely on it.
        """
        used = {thread: seconds - before.get(thread, 0.0) for thread, seconds in self.thread_s().items()}
        busiest = sorted(used, key=lambda thread: -used[thread])[: len(self._cpus)]
        try:
            bound = {cpu for thread in busiest if len(mask := os.sched_getaffinity(thread)) == 1 for cpu in mask}
            free = [thread for thread in busiest if len(os.sched_getaffinity(thread)) > 1]
            for thread, cpu in zip(free, [c for c in self._cpus if c not in bound], strict=False):
                os.sched_setaffinity(thread, {cpu})
        except OSError as error:
            return f"none ({error.strerror})"
        return "itself" if not free else "the driver" if not bound else "itself and the driver"

    def close(self, patience_s: float = 10.0) -> None:
        """Lets the engine end, or kills it after `patience_s`."""
        if self._paused:
            self.resume()
        with contextlib.suppress(OSError):
            self._questions.close()
        self._process.code(patience_s)
        self.kill()

    def kill(self) -> None:
        """Kills all its processes."""
        self._process.stop()
        with contextlib.suppress(OSError):
            self._questions.close()
        self._answers.close()


def _prepare(cpus: Sequence[int], niceness: int) -> None:
    os.nice(niceness)
    os.sched_setaffinity(0, cpus)
