"""One contestant's turn at one cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from drut.bench.compare.candidate import Candidate
from drut.bench.compare.cells import seed_of
from drut.bench.compare.cycles import closed_loop_figures
from drut.bench.compare.order import OrderTurn
from drut.bench.compare.schema import Block, Cell
from drut.bench.compare.settings import CompareSettings
from drut.bench.cost import parse_price
from drut.bench.engines.engine import EngineFailedError
from drut.bench.engines.ready import serves
from drut.bench.load.client import Target
from drut.bench.load.fleet import ClosedLoop, LoadPlan, LoadProgress, OpenLoop, workers_for
from drut.bench.load.halt import INTERRUPTED
from drut.bench.load.schedule import ArrivalRate, Schedule
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.request import Slo
from drut.bench.result.build import Billing
from drut.bench.result.figures import FIGURES
from drut.bench.result.schema import Result
from drut.bench.run import BenchRun, measure
from drut.bench.tokens import BenchTokenizer

SAMPLES = ("ttft_ms", "tpot_ms", "e2e_ms")
# share of a prompt's tokens by the model's tokenizer, and tokens that may be added to twice as many
MIN_READ, MAX_ADDED = 0.9, 256
FEW = 4  # tokens that may be added to a short prompt


@dataclass(frozen=True)
class BlockWork:
    """A cell with the properties of its requests: whether responses have exactly the requested number of tokens,
    further fields of each request, and whether sessions have several turns."""

    cell: Cell
    exact: bool
    body: dict[str, Any] = field(default_factory=dict)
    turns: bool = False


def take(turn: OrderTurn, candidate: Candidate, work: BlockWork, settings: CompareSettings,
         tokenizer: BenchTokenizer | None) -> Block:
    """Measures a turn. Raises EngineFailedError if the engine ends or answers no request, KeyboardInterrupt if the user
    ends the comparison, DrutError if the work cannot be sent."""
    def look(progress: LoadProgress) -> None:
        candidate.check()

    result, halted = measure(_run(turn, candidate, work, settings, tokenizer), look)
    if halted == INTERRUPTED:
        raise KeyboardInterrupt
    candidate.check()
    candidate.weigh()
    slow = [] if _ended(result) else [_why_slow(result, candidate, settings.grace)]
    users = work.cell.concurrency
    rates = {} if users is None or work.turns else closed_loop_figures(result, users)
    of_engine = [*slow, *(_lengths(result, settings.gate_exact) if work.exact else []), *_prompts(result),
                 *([] if rates else _spanning(result, settings.warmup))]
    reasons = [*result.validity.reasons, *of_engine]
    figures = {**{name: kind.of(result) for name, kind in FIGURES.items()}, **rates}
    return Block(round=turn.round, turn=turn.place, contestant=candidate.name, cell=work.cell.name, valid=not reasons,
                 reasons=reasons, figures=figures, samples={name: _samples(result, name) for name in SAMPLES},
                 timeline=result.series.output_tokens, started=str(result.environment["started"]),
                 held_up=result.validity.held_up and not of_engine, again=turn.again)


def _why_slow(result: Result, candidate: Candidate, patience_s: float) -> str:
    """Explains a turn in which no response completed. Raises EngineFailedError if even a request for a single token now
    fails."""
    # All requests count, not only those of the window: users of a closed loop who wait since the warm-up send none in
    # it.
    assert candidate.launch is not None
    failures = {request.failure for request in result.requests}
    if failures - {"unfinished"} or not serves(msgspec.structs.replace(candidate.launch, ready="completion"),
                                               patience_s):
        detail = next((request.detail for request in result.requests if request.detail), "")
        raise EngineFailedError(f"it answered none of {len(result.requests)} requests ({detail})")
    return "no response completed in it: it is too short for this engine"


def _ended(result: Result) -> bool:
    return any(request.failure is None for request in result.requests)


def _run(turn: OrderTurn, candidate: Candidate, work: BlockWork, settings: CompareSettings,
         tokenizer: BenchTokenizer | None) -> BenchRun:
    cell, launch, running = work.cell, candidate.launch, candidate.running
    assert launch is not None
    assert running is not None
    seed = seed_of(settings.seed, turn.round, cell.name, turn.again)
    body = {"temperature": 0, **launch.body, **work.body}
    target = Target(launch.url, launch.model, body=body, exact=launch.exact, timeout_s=settings.timeout)
    loop: OpenLoop | ClosedLoop = (OpenLoop(Schedule(ArrivalRate.steady(cell.rate),
                                                     seed=seed)) if cell.rate is not None else
                                   ClosedLoop(cell.concurrency or 1))
    # If the engine continued requests that its client gave up, its next turn would be slower.
    window = MeasureWindow(settings.warmup, settings.warmup + settings.duration, settings.grace, drain=settings.grace)
    return BenchRun(LoadPlan(target, window, loop, workers_for(loop)), cell.workload, tokenizer=tokenizer,
                    chat=settings.api == "chat", seed=seed,
                    slo=None if settings.slo is None else Slo.parse(settings.slo),
                    most_errors=settings.max_error_rate, arrivals=False, server_pid=running.pid, primed=True,
                    billing=None if settings.price is None else Billing(parse_price(settings.price)))


def _lengths(result: Result, least: float) -> list[str]:
    """Returns reasons if lengths are wrong: a shorter response ends sooner without being faster."""
    exact = [request.output_tokens == request.max_tokens for request in result.requests
            if request.measured and request.failure is None and request.output_tokens is not None]
    if not exact or np.mean(exact) >= least:
        return []
    return [f"{len(exact) - sum(exact)} of {len(exact)} responses do not have exactly the requested tokens"]


def _prompts(result: Result) -> list[str]:
    """Returns reasons if prompts are wrong: a truncated prompt is computed sooner without being faster. Engines add the
    tokens of a template; an impossible number must not be among the figures."""
    counts = [(request.input_tokens, request.expected_input_tokens) for request in result.requests
            if request.measured and request.failure is None]
    both = [(own, sent) for own, sent in counts if own is not None and sent is not None]
    wrong = [(own, sent) for own, sent in both if not MIN_READ * sent - FEW <= own <= 2 * sent + MAX_ADDED]
    if not wrong:
        return []
    return [f"{len(wrong)} of {len(both)} prompts differ from those sent, by the engine's count, such as "
            f"{wrong[0][0]} tokens of {wrong[0][1]}"]


def _spanning(result: Result, warmup: float) -> list[str]:
    """Returns a reason if responses span the window: then its rates do not measure them."""
    began = [request.scheduled_ms for request in result.requests if request.measured]
    return ["its responses outlast the turn (a longer --duration)"] if began and max(began) < warmup * 1e3 else []


def _samples(result: Result, name: str) -> list[float]:
    values = (getattr(request, name) for request in result.requests if request.measured)
    return sorted(value for value in values if value is not None)
