"""One measured run, from its parameters to its result: the base of every command that loads a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from drut.bench.address import tls_context
from drut.bench.load.fleet import LoadPlan, LoadProgress, LoadResult, run_load
from drut.bench.load.halt import Halt
from drut.bench.load.prime import prime
from drut.bench.metrics.request import Slo
from drut.bench.result.build import Billing, build
from drut.bench.result.schema import Result
from drut.bench.tokens import BenchTokenizer, counting, open_tokenizer
from drut.bench.watch import Watch
from drut.bench.workloads import Sessions, Workload, load
from drut.errors import RequestError


@dataclass(frozen=True)
class BenchRun:
    """The parameters of a run: what it sends and what it watches.

    `workload` is the text of `--workload`, or a workload. `requests`: the run ends after so many, and the plan's window
    is `MeasureWindow.of_workload`. `tokenizer` is an open tokenizer or an argument of `open_tokenizer`; None:
    the model's own, if available. `metrics_url` None: the server's metrics are not read. `primed`: shared prefixes of
    the prompts are sent once before the load (`Workload.primers`), so that the cache state does not depend on the
    length of the run. `settings` are copied into the result.
    """

    plan: LoadPlan
    workload: str | Workload
    requests: int | None = None
    tokenizer: BenchTokenizer | str | None = None
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


def measure(run: BenchRun, on_progress: Callable[[LoadProgress], None] | None = None) -> tuple[Result, str | None]:
    """Returns the result, and the reason for an early end or None (`LoadResult.halted`).

    In the main thread SIGINT and SIGTERM end the run in order; KeyboardInterrupt is raised if nothing was measured by
    then. Raises RequestError for invalid parameters, DrutError if the server cannot be reached or nothing was measured.
    """
    target = run.plan.target
    target.path(run.chat)
    tls = tls_context(target.verify_tls, target.ca_file)
    watch = Watch(run.metrics_url, target.headers, run.server_pid, tls)
    sessions, tokenizer = _sessions(run, tls)
    if run.primed:
        prime(target, sessions.primers(), tls)
    with watch:
        loaded = _load(run.plan, sessions, on_progress)
    window = run.plan.window
    result = build(loaded, {**run.settings, "work": sessions.describe()}, slo=run.slo,
                   wanted_s=0.0 if window.endless else window.length,
                   missing=0 if run.requests is None else run.requests - sessions.requests,
                   most_errors=run.most_errors, count=counting(tokenizer) if tokenizer else None,
                   arrivals=run.arrivals, watched=watch.result, billing=run.billing)
    return result, loaded.halted


def _sessions(run: BenchRun, tls: Any) -> tuple[Sessions, BenchTokenizer | None]:
    """Returns the sessions, and the target's tokenizer if there is one; a workload that needs one raises an error."""
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
                no_tokenizer=why, most=run.requests), tokenizer


def _load(plan: LoadPlan, sessions: Iterator[Any], on_progress: Callable[[LoadProgress], None] | None) -> LoadResult:
    halt = Halt()

    async def loaded() -> LoadResult:
        with _signals(halt):
            return await run_load(plan, sessions, on_progress, halt)

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
