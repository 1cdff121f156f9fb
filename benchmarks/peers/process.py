"""An engine's process as the driver sees it: asked by JSON lines, stopped between its turns, its threads pinned."""

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
    """An engine's process ended or did not answer; the message has the end of its log."""


class EngineProcess:
    """Runs `module` under `python` with stderr in `log`. Runnable until `pause`; `resume` before the next question."""

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
        """The answer to one request. EngineError where none comes within `timeout_s`."""
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
        """Stop all processes, so that none takes time from another engine's turn."""
        self.tree.suspend()
        self._paused = True

    def resume(self) -> None:
        """Let them run on."""
        self.tree.resume()
        self._paused = False

    def thread_s(self) -> dict[int, float]:
        """Thread -> the CPU seconds it has used."""
        used: dict[int, float] = {}
        for process in self.tree.members():
            with contextlib.suppress(psutil.Error):
                used |= {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
        return used

    def pin(self, before: Mapping[int, float]) -> str:
        """Bind the threads busiest since `before` (of `thread_s`) to a CPU each. Who bound them, in a word.

        Those that the engine bound stay where they are: it may count on that.
        """
        used = {thread: seconds - before.get(thread, 0.0) for thread, seconds in self.thread_s().items()}
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
        with contextlib.suppress(OSError):
            self._questions.close()
        self._process.code(patience_s)
        self.kill()

    def kill(self) -> None:
        """End all its processes now."""
        self._process.stop()
        with contextlib.suppress(OSError):
            self._questions.close()
        self._answers.close()


def _prepare(cpus: Sequence[int], niceness: int) -> None:
    os.nice(niceness)
    os.sched_setaffinity(0, cpus)
