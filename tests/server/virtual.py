"""An event loop whose clock jumps to the next timer, and an engine of known speed on it: hours pass in no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from drut.engine.request.output import Chunk, Completion
from drut.engine.request.params import FilledParams
from drut.engine.service.async_engine import Sink
from drut.engine.service.messages import EngineReady, Failed, Output
from drut.errors import EngineDeadError
from drut.observe.trace import RequestTrace


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = 0.0
        super().__init__()

    def time(self) -> float:
        return self._virtual

    def _run_once(self) -> None:
        if not self._ready:
            # A cancelled timer in front would leave the loop in real sleep until the next one.
            due = min((timer._when for timer in self._scheduled if not timer._cancelled), default=self._virtual)
            self._virtual = max(self._virtual, due)
        super()._run_once()


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@dataclass
class Job:
    handle: str
    prompt: int
    left: int  # prompt tokens to compute
    params: FilledParams
    sink: Sink
    cached: int = 0
    said: int = 0
    at: float = 0.0


class FakeEngine:
    """Steps of `step_s`: each computes up to `step_tokens` prompt tokens of the oldest jobs, `max_seqs` at a time, and
    says a token for every other one. `dead` and `say` are there for tests to break it."""

    def __init__(self, *, max_seqs: int = 4, step_s: float = 0.1, step_tokens: int = 64, room: int = 1000) -> None:
        self.ready = EngineReady(load_s=0.0, numerics_id="fake", description="no model", room=room, max_seqs=max_seqs,
                                 step_tokens=step_tokens, parts={})
        self.dead: str | None = None
        self.step_s = step_s
        self.jobs: list[Job] = []
        self.served: dict[str, int] = {}  # tokens by name of the request, prompt and answer
        self.order: list[str] = []  # of names, as they came
        self.most = 0  # jobs at a time
        self.idle_steps = 0
        self._watchers: list[Callable[[str], None]] = []
        self._serial = 0
        self._task: asyncio.Task[None] | None = None

    def open(self, prompt: str | list[int], params: FilledParams, sink: Sink, *, name: str = "", priority: int = 0,
             salt: str = "", lean: bool = False) -> str:
        if self.dead is not None:
            raise EngineDeadError(self.dead)
        self._serial += 1
        self.jobs.append(Job(f"{name}.{self._serial}", len(prompt), len(prompt), params, sink))
        self.order.append(name)
        self.most = max(self.most, len(self.jobs))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self.jobs[-1].handle

    def abort(self, handle: str) -> None:
        self.jobs = [job for job in self.jobs if job.handle != handle]

    def on_death(self, watcher: Callable[[str], None]) -> None:
        self._watchers.append(watcher)

    def die(self, reason: str) -> None:
        self.dead = reason
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job.sink(Failed("", reason, False))
        for watcher in self._watchers:
            watcher(reason)

    async def _run(self) -> None:
        while self.jobs:
            await asyncio.sleep(self.step_s)
            budget = self.ready.step_tokens
            for job in self.jobs[: self.ready.max_seqs]:
                if job.left:
                    part = min(budget, job.left)
                    budget -= part
                    job.left -= part
                    if job.left or not part:
                        continue
                self._say(job)

    def _say(self, job: Job) -> None:
        job.said += 1
        name = job.handle.rpartition(".")[0]
        self.served[name] = self.served.get(name, 0) + 1 + (job.prompt if job.said == 1 else 0)
        end = None
        if job.said == job.params.max_tokens:
            self.jobs.remove(job)
            end = Completion(text="x" * job.said, token_ids=[0] * job.said, finish_reason="length",
                             prompt_tokens=job.prompt, cached_tokens=job.cached, completion_tokens=job.said, seed=0,
                             why=RequestTrace(steps=job.said))
        job.sink(Output(job.handle, Chunk("x", [0], end), end is not None))
