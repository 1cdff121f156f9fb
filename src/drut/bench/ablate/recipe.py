"""What there is to know of a technique before it is measured: how it is switched, where it should show, and why."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from drut.bench.compare.schema import Cell
from drut.bench.result.figures import FIGURES

Expected = Literal["helps", "no effect", "costs"]


class Side(msgspec.Struct, frozen=True):
    """One of the two servers: its flags, and the encoding of its matrices; empty: as the model's file has them."""

    flags: tuple[str, ...] = ()
    weights: str = ""


class Trial(msgspec.Struct, frozen=True):
    """A cell that a technique is tried on. `judged`: by figure, what theory expects of it there. `body` goes into every
    request; `warmup_s` and `duration_s` are what the cell needs at least. `chat`: through the chat template, where
    answers end by themselves; else prompts are completed, and answers have just the tokens that are asked for."""

    cell: Cell
    judged: dict[str, Expected]
    body: dict[str, Any] = {}
    warmup_s: float = 0.0
    duration_s: float = 0.0
    chat: bool = False


class Recipe(msgspec.Struct, frozen=True):
    """A technique. `about` says what it does, `theory` what it should do to the figures and where; sentences that stand
    in the documents as they are."""

    name: str
    title: str
    about: str
    theory: str
    on: Side
    off: Side
    trials: tuple[Trial, ...]

    def __post_init__(self) -> None:
        names = [trial.cell.name for trial in self.trials]
        unknown = [figure for trial in self.trials for figure in trial.judged if figure not in FIGURES]
        if len(set(names)) < len(names) or unknown or not names:
            raise ValueError(f"technique {self.name}: cells {names}, figures that are none {unknown}")
