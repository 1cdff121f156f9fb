"""Runs an ablation: technique by technique, with two servers in turns; results are saved after each block."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec

from drut.bench.ablate.book import Book, contestants
from drut.bench.ablate.recipe import AblationRecipe, AblationTrial, Side
from drut.bench.ablate.schema import Effect
from drut.bench.ablate.words import interval
from drut.bench.compare.block import BlockWork, take
from drut.bench.compare.candidate import Candidate
from drut.bench.compare.entries import CompareEntry
from drut.bench.compare.order import OrderTurn
from drut.bench.compare.schema import Block
from drut.bench.compare.settings import CompareSettings
from drut.bench.engines.engine import BenchEngine, EngineFailedError, EngineFiles, Launch, Options
from drut.bench.render.tables import cell as shown
from drut.bench.result.figures import FIGURES
from drut.bench.tokens import open_tokenizer
from drut.errors import DrutError

START_S, AROUND_S = 4.0, 1.5  # seconds for a server's start, and for a block in addition to its warm-up and its window
CONTEXT, SEQUENCES = 4096, 16

Report = Callable[[str], None]


class AblationPlan(msgspec.Struct, frozen=True):
    """The parameters of an ablation. `warmup_s` and `duration_s` are the minimum; a trial may need more."""

    recipes: Sequence[AblationRecipe]
    rounds: int
    duration_s: float
    warmup_s: float
    seed: int
    threads: int

    def settings(self) -> dict[str, Any]:
        """Returns the settings that all blocks of one folder must share."""
        return {"duration_s": self.duration_s, "warmup_s": self.warmup_s, "seed": self.seed, "threads": self.threads}

    def manner(self, trial: AblationTrial) -> CompareSettings:
        """Returns the settings of each turn at a trial's cell, in the form of a comparison of engines."""
        return CompareSettings(engines=["drut"], cells=[trial.cell.name], api="chat" if trial.chat else "completions",
                               duration=max(self.duration_s, trial.duration_s),
                               warmup=max(self.warmup_s, trial.warmup_s), seed=self.seed)

    def seconds(self, recipe: AblationRecipe, todo: Sequence[OrderTurn]) -> float:
        """Estimates the seconds that these turns of a technique take."""
        trials = {trial.cell.name: trial for trial in recipe.trials}
        manners = [self.manner(trials[turn.cell]) for turn in todo]
        return sum(m.warmup + m.duration + AROUND_S for m in manners) + (2 * START_S if todo else 0.0)


def seconds(plan: AblationPlan, book: Book) -> float:
    """Estimates the seconds that the rest takes."""
    return sum(plan.seconds(recipe, book.missing(recipe, plan.rounds)) for recipe in plan.recipes)


def ablate(plan: AblationPlan, engine: BenchEngine, files: Callable[[str], EngineFiles], book: Book,
           report: Report) -> None:
    """Measures what `book` lacks. `files` returns the model with its matrices in an encoding; empty: unchanged.

    If a server does not start or dies, its technique ends and the others continue. KeyboardInterrupt leaves only
    complete blocks in `book`. Raises RequestError for invalid requests, DrutError if files cannot be written.
    """
    for number, recipe in enumerate(plan.recipes):
        book.add(recipe)
        todo = book.missing(recipe, plan.rounds)
        left = sum(plan.seconds(later, book.missing(later, plan.rounds)) for later in plan.recipes[number:])
        report(f"{recipe.title} ({number + 1} of {len(plan.recipes)}): "
             + (f"{len(todo)} blocks, about {minutes(left)} left" if todo else "measured before"))
        if todo:
            _Pair(plan=plan, engine=engine, files=files, recipe=recipe, book=book, report=report).run()


def minutes(s: float) -> str:
    """Formats a duration for people."""
    return f"{s / 60:.0f} min" if s >= 90 else f"{s:.0f} s"


class _Pair:
    """The two servers of one technique."""

    def __init__(self, plan: AblationPlan, engine: BenchEngine, files: Callable[[str], EngineFiles],
                 recipe: AblationRecipe, book: Book,
                 report: Report) -> None:
        self.plan, self.engine, self.files = plan, engine, files
        self.recipe, self.book, self.report = recipe, book, report
        self.trials = {trial.cell.name: trial for trial in recipe.trials}
        whose = files("").tokenizer
        self.tokenizer = open_tokenizer(whose, model="") if whose else None

    def run(self) -> None:
        """Runs all missing turns, and void blocks once more, until a server fails."""
        with ExitStack() as ends:
            candidates: dict[str, Candidate] = {}
            for name, side in contestants(self.recipe).items():
                candidate = candidates[name] = self._candidate(name, side)
                ends.callback(candidate.stop)
                if not self._try(candidate, candidate.serve):
                    return
                candidate.rest(False)
            for again in (False, True):
                todo = self.book.missing(self.recipe, self.plan.rounds)
                self.book.forget(todo)
                for turn in todo:
                    candidate = candidates[turn.contestant]
                    if not self._try(candidate, partial(self._turn, turn._replace(again=again), candidate)):
                        return
                    candidate.rest(False)
            for candidate in candidates.values():
                self.book.record_outcome(candidate.contestant())

    def _candidate(self, name: str, side: Side) -> Candidate:
        options = Options(self.plan.threads, CONTEXT, SEQUENCES, side.flags)
        log = self.book.folder / "logs" / f"{name.replace('/', '-')}.log"
        engine = _Lazy(self.engine, self.files, side)
        return Candidate(CompareEntry(name, self.engine.name), engine, self.files(""), options, log)

    def _try(self, candidate: Candidate, act: Callable[[], object]) -> bool:
        """Returns whether `act` succeeded; a failure is recorded and ends the candidate."""
        try:
            act()
        except DrutError as error:
            candidate.fail(_why(candidate, error))
            self.report(f"  {candidate.name}: {candidate.outcome}: {candidate.why}")
        self.book.record_outcome(candidate.contestant())
        return candidate.ready

    def _turn(self, turn: OrderTurn, candidate: Candidate) -> None:
        trial, began = self.trials[turn.cell], time.monotonic()
        candidate.serve()
        work = BlockWork(trial.cell, not trial.chat, trial.body)
        block = take(turn, candidate, work, self.plan.manner(trial), self.tokenizer)
        effects = self.book.block(self.recipe, block)
        self.report(_progress(block, trial, effects, time.monotonic() - began))


class _Lazy:
    """An engine on a model's weights in one encoding; the weights are converted when the engine starts."""

    def __init__(self, engine: BenchEngine, files: Callable[[str], EngineFiles], side: Side) -> None:
        self.name, self.title, self.verified = engine.name, engine.title, engine.verified
        self._engine, self._files, self._side = engine, files, side

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the files of the side, whatever `files` are."""
        return self._engine.launch(self._files(self._side.weights), options, port)


def _why(candidate: Candidate, error: DrutError) -> DrutError:
    """Returns how an engine that does not answer ended, if it ended."""
    try:
        candidate.check()
    except EngineFailedError as ended:
        return ended
    return error


def _progress(block: Block, trial: AblationTrial, effects: Sequence[Effect], took: float) -> str:
    figure = next(iter(trial.judged))
    value = shown(block.figures.get(figure))
    line = f"  round {block.round + 1}, {block.cell}, {block.contestant}: {FIGURES[figure].title} {value} " \
           f"{FIGURES[figure].unit}" if block.valid else \
           f"  round {block.round + 1}, {block.cell}, {block.contestant}: void, {block.reasons[0]}"
    ratios = [interval(e) for e in effects if (e.cell, e.figure) == (block.cell, figure)]
    return line + (f"; on / off {ratios[0]}" if ratios else "") + f" ({took:.1f} s)"
