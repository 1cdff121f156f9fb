"""One turn at a cell: the load that it asks for, and the block that comes of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from drut.bench.compare.cells import seed_of
from drut.bench.compare.figures import FIGURES
from drut.bench.compare.order import Turn
from drut.bench.compare.schema import Block, Cell
from drut.bench.engines.engine import Launch
from drut.bench.load.client import Target
from drut.bench.load.fleet import ClosedLoop, LoadPlan, OpenLoop, workers_for
from drut.bench.load.halt import INTERRUPTED
from drut.bench.load.schedule import Rate, Schedule
from drut.bench.load.wire import Window
from drut.bench.report.schema import Result
from drut.bench.run import Run, measure
from drut.bench.tokens import Tokenizer

LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms")


class Manner(msgspec.Struct, frozen=True):
    """How each turn at a cell is measured, the same for all. Seconds; `grace_s`: most that answers are waited for."""

    duration_s: float
    warmup_s: float = 2.0
    grace_s: float = 60.0
    seed: int = 0
    chat: bool = False
    body: dict[str, Any] = {}


def measured(turn: Turn, cell: Cell, launch: Launch, manner: Manner,
             tokenizer: Tokenizer | str | None = None) -> tuple[Block, Result]:
    """The block and the result it was taken from. Raises DrutError where the server cannot be reached or nothing was
    measured, KeyboardInterrupt for a turn that was cut short."""
    target = Target(launch.url, launch.model, body={**launch.body, **manner.body}, exact=launch.exact)
    window = Window(manner.warmup_s, manner.warmup_s + manner.duration_s, manner.grace_s)
    seed = seed_of(manner.seed, turn.round, turn.cell)
    loop = _loop(cell, seed)
    run = Run(LoadPlan(target, window, loop, workers_for(loop)), cell.workload, tokenizer, chat=manner.chat,
              ids=launch.token_ids and not manner.chat, seed=seed, arrivals=False)
    result, halted = measure(run)
    if halted == INTERRUPTED:
        raise KeyboardInterrupt
    return _block(turn, result), result


def _loop(cell: Cell, seed: int) -> OpenLoop | ClosedLoop:
    if cell.concurrency is not None:
        return ClosedLoop(cell.concurrency)
    return OpenLoop(None if cell.rate is None else Schedule(Rate.steady(cell.rate), "poisson", 1.0, seed))


def _block(turn: Turn, result: Result) -> Block:
    figures: dict[str, float | Literal["inf"] | None] = {name: kind.of(result) for name, kind in FIGURES.items()}
    done = [request for request in result.requests if request.measured]
    samples = {name: sorted(value for r in done if (value := getattr(r, name)) is not None) for name in LATENCIES}
    return Block(turn.round, turn.place, turn.contestant, turn.cell, result.validity.valid, result.validity.reasons,
                 figures, samples, result.series.output_tokens, str(result.environment.get("started", "")))
