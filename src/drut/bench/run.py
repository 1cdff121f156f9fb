"""One measured run, from what is asked to its result: what every command that loads a server is made of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from drut.bench.address import tls_context
from drut.bench.load.fleet import Load, LoadPlan, Progress, run_load
from drut.bench.load.halt import Halt
from drut.bench.load.prime import prime
from drut.bench.metrics.request import Slo
from drut.bench.result.build import Billing, build
from drut.bench.result.schema import Result
from drut.bench.tokens import Tokenizer, counting, open_tokenizer
from drut.bench.watch import Watch
from drut.bench.workloads import Sessions, load
from drut.errors import RequestError


@dataclass(frozen=True)
class Run:
    """What is to be sent, and what is watched meanwhile.

    `workload` is as `--workload` takes it. `tokenizer`: an open one, or what `open_tokenizer` takes; None: the
    model's, where it can be had. `metrics_url` None leaves the server's own metrics alone. `primed`: what prompts of
    the workload share is sent once before the load (`Workload.primers`), so that a run finds the same cache however
    short it is. `settings` go into the result as they are.
    """

    plan: LoadPlan
    workload: str
    tokenizer: Tokenizer | str | None = None
    chat: bool = True
    ids: bool = False
    seed: int = 0
    slo: Slo | None = None
    most_errors: float = 0.01
    arrivals: bool = True
    metrics_url: str | None = None
    server_pid: int | None = None
    billing: Billing | None = None
    primed: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


def measure(run: Run, tell: Callable[[Progress], None] | None = None) -> tuple[Result, str | None]:
    """The result, and why it was ended before its time (`Load.halted`).

    In the main thread SIGINT and SIGTERM end the run in order; KeyboardInterrupt where they leave nothing to tell.
    Raises RequestError for what cannot be sent, DrutError where the server cannot be reached or nothing was measured.
    """
    target = run.plan.target
    target.path(run.chat)
    tls = tls_context(target.verify_tls, target.ca_file)
    watch = Watch(run.metrics_url, target.headers, run.server_pid, tls)
    sessions, tokenizer = _sessions(run, tls)
    if run.primed:
        prime(target, sessions.primers(), tls)
    with watch:
        loaded = _load(run.plan, sessions, tell)
    result = build(loaded, {**run.settings, "work": sessions.describe()}, wanted_s=run.plan.window.length, slo=run.slo,
                   most_errors=run.most_errors, count=counting(tokenizer) if tokenizer else None,
                   arrivals=run.arrivals, watched=watch.result, billing=run.billing)
    return result, loaded.halted


def _sessions(run: Run, tls: Any) -> tuple[Sessions, Tokenizer | None]:
    """The sessions, and the target's tokenizer where there is one; a workload that needs one says so."""
    why = ""
    target = run.plan.target
    tokenizer = None
    if run.tokenizer is None or isinstance(run.tokenizer, str):
        try:
            tokenizer = open_tokenizer(run.tokenizer, model=target.model, url=target.url, headers=target.headers,
                                       tls=tls)
        except RequestError as error:
            if run.tokenizer is not None:
                raise
            why = str(error)
    else:
        tokenizer = run.tokenizer
    return load(run.workload, tokenizer=tokenizer, seed=run.seed, chat=run.chat, ids=run.ids,
                no_tokenizer=why), tokenizer


def _load(plan: LoadPlan, sessions: Iterator[Any], tell: Callable[[Progress], None] | None) -> Load:
    halt = Halt()

    async def loaded() -> Load:
        with _signals(halt):
            return await run_load(plan, sessions, tell, halt)

    try:
        done = asyncio.run(loaded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    if halt.interrupted and not done.window.length:
        raise KeyboardInterrupt
    return done


@contextmanager
def _signals(halt: Halt) -> Iterator[None]:
    if threading.current_thread() is threading.main_thread():
        with halt.on_signals():
            yield
    else:
        yield
