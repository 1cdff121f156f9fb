"""Runs an ablation: technique by technique, two servers that take turns, everything kept after each block."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import msgspec

from drut.bench.ablate.book import Book, contestants
from drut.bench.ablate.recipe import Recipe, Side, Trial
from drut.bench.ablate.schema import Effect
from drut.bench.ablate.words import interval
from drut.bench.compare.figures import FIGURES
from drut.bench.compare.measured import Manner, measured
from drut.bench.compare.order import Turn
from drut.bench.compare.schema import Block, Contestant
from drut.bench.engines.engine import CannotRunError, Engine, EngineFailedError, Launch, ModelFiles, Options
from drut.bench.engines.process import Running, free_port, start
from drut.bench.report.tables import cell as shown
from drut.errors import DrutError

START_S, AROUND_S = 4.0, 1.5  # a server's start; what a block takes beside its warm-up and its window
CONTEXT, SEQUENCES = 4096, 16

Tell = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True):
    """What is to be measured. `warmup_s` is the least; a trial may need more."""

    recipes: Sequence[Recipe]
    rounds: int
    duration_s: float
    warmup_s: float
    seed: int
    threads: int

    def settings(self) -> dict[str, Any]:
        """What all blocks of one folder must have in common."""
        return {"duration_s": self.duration_s, "warmup_s": self.warmup_s, "seed": self.seed, "threads": self.threads}

    def manner(self, trial: Trial) -> Manner:
        """How each turn at a trial's cell is measured."""
        return Manner(self.duration_s, max(self.warmup_s, trial.warmup_s), seed=self.seed, chat=trial.chat,
                      body=trial.body)

    def seconds(self, recipe: Recipe, todo: Sequence[Turn]) -> float:
        """About how long these turns of a technique take."""
        trials = {trial.cell.name: trial for trial in recipe.trials}
        each = [self.manner(trials[turn.cell]).warmup_s + self.duration_s + AROUND_S for turn in todo]
        return sum(each) + (2 * START_S if todo else 0.0)


def seconds(plan: Plan, book: Book) -> float:
    """About how long the rest takes."""
    return sum(plan.seconds(recipe, book.missing(recipe, plan.rounds)) for recipe in plan.recipes)


def ablate(plan: Plan, engine: Engine, files: Callable[[str], ModelFiles], book: Book, tell: Tell) -> None:
    """Measures what `book` lacks. `files` gives the model with its matrices in an encoding; empty: as they are.

    A server that does not start or dies ends its technique, and the others go on. KeyboardInterrupt leaves whole
    blocks in `book`. Raises RequestError for what cannot be asked, DrutError where files cannot be written.
    """
    for number, recipe in enumerate(plan.recipes):
        book.add(recipe)
        todo = book.missing(recipe, plan.rounds)
        left = sum(plan.seconds(later, book.missing(later, plan.rounds)) for later in plan.recipes[number:])
        tell(f"{recipe.title} ({number + 1} of {len(plan.recipes)}): "
             + (f"{len(todo)} blocks, about {minutes(left)} left" if todo else "measured before"))
        if todo:
            _Pair(plan, engine, files, recipe, book, tell).run(todo)


def minutes(s: float) -> str:
    """For people."""
    return f"{s / 60:.0f} min" if s >= 90 else f"{s:.0f} s"


class _Pair:
    """The two servers of one technique."""

    def __init__(self, plan: Plan, engine: Engine, files: Callable[[str], ModelFiles], recipe: Recipe, book: Book,
                 tell: Tell) -> None:
        self.plan, self.engine, self.files, self.recipe, self.book, self.tell = plan, engine, files, recipe, book, tell
        self.trials = {trial.cell.name: trial for trial in recipe.trials}

    def run(self, todo: Sequence[Turn]) -> None:
        """All turns, or those up to where one of the servers is no more."""
        with ExitStack() as stack:
            running: dict[str, Running] = {}
            for name, side in contestants(self.recipe).items():
                server = self._start(name, side)
                if server is None:
                    return
                running[name] = stack.enter_context(server)
                server.suspend()
            for turn in todo:
                if not self._turn(turn, running[turn.contestant]):
                    return

    def _start(self, name: str, side: Side) -> Running | None:
        launch: Launch | None = None
        try:
            options = Options(self.plan.threads, CONTEXT, SEQUENCES, side.flags)
            launch = self.engine.launch(self.files(side.weights), options, free_port())
            log = self.book.folder / "logs" / f"{name.replace('/', '-')}.log"
            running = start(launch, log)
        except CannotRunError as error:
            self._lost(name, launch, "cannot run", str(error))
            return None
        except EngineFailedError as error:
            self._lost(name, launch, "failed", str(error))
            return None
        memory = running.memory()
        self._told(name, launch, "measured", ready_s=running.ready_s,
                   ready_mb=memory.resident_mb if memory else None)
        return running

    def _turn(self, turn: Turn, running: Running) -> bool:
        """Whether the technique can go on."""
        trial = self.trials[turn.cell]
        began = time.monotonic()
        environment = None
        running.resume()
        try:
            block, result = measured(turn, trial.cell, running.launch, self.plan.manner(trial),
                                     self.files("").tokenizer)
            environment = result.environment
        except DrutError as error:
            if not running.alive():
                self._lost(turn.contestant, running.launch, "failed", running.how_it_ended())
                return False
            block = Block(turn.round, turn.place, turn.contestant, turn.cell, False, [str(error)], {}, {})
        finally:
            running.suspend()
        effects = self.book.block(self.recipe, block, environment)
        self.tell(_progress(block, trial, effects, time.monotonic() - began))
        return True

    def _lost(self, name: str, launch: Launch | None, outcome: Literal["failed", "cannot run"], why: str) -> None:
        self._told(name, launch, outcome, why)
        self.tell(f"  {name}: {outcome}: {why}")

    def _told(self, name: str, launch: Launch | None, outcome: Literal["measured", "failed", "cannot run"],
              why: str = "", **figures: Any) -> None:
        engine = self.engine
        if launch is None:
            launch = Launch("", "")
        self.book.told(Contestant(name, engine.name, f"{engine.title}, {name}", outcome, why, launch.weights,
                                  engine.verified, list(launch.remarks), launch.versions, list(launch.argv), **figures))


def _progress(block: Block, trial: Trial, effects: Sequence[Effect], took: float) -> str:
    figure = next(iter(trial.judged))
    value = shown(block.figures.get(figure))
    told = f"  round {block.round + 1}, {block.cell}, {block.contestant}: {FIGURES[figure].title} {value} " \
           f"{FIGURES[figure].unit}" if block.valid else \
           f"  round {block.round + 1}, {block.cell}, {block.contestant}: void, {block.reasons[0]}"
    ratios = [interval(e) for e in effects if (e.cell, e.figure) == (block.cell, figure)]
    return told + (f"; on / off {ratios[0]}" if ratios else "") + f" ({took:.1f} s)"
