"""The static description of a technique: how it is switched, which figures it should change, and why."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from drut.bench.compare.schema import Cell
from drut.bench.result.figures import FIGURES

Expected = Literal["helps", "no effect", "costs"]


class Side(msgspec.Struct, frozen=True):
    """One of the two servers: its flags, and the encoding of its matrices; empty: as in the model's file."""

    flags: tuple[str, ...] = ()
    weights: str = ""


class AblationTrial(msgspec.Struct, frozen=True):
    """A cell in which a technique is measured. `judged`: by figure, the effect that theory predicts there. `body` is
    merged into every request; `warmup_s` and `duration_s` are the minimum for the cell. `chat`: with the chat template,
    where responses end by themselves; otherwise prompts are completed, and responses have exactly the requested number
    of tokens."""

    cell: Cell
    judged: dict[str, Expected]
    body: dict[str, Any] = {}
    warmup_s: float = 0.0
    duration_s: float = 0.0
    chat: bool = False


class AblationRecipe(msgspec.Struct, frozen=True):
    """A technique. `about` describes it, `theory` predicts its effects; the documents contain these sentences."""

    name: str
    title: str
    about: str
    theory: str
    on: Side
    off: Side
    trials: tuple[AblationTrial, ...]

    def __post_init__(self) -> None:
        names = [trial.cell.name for trial in self.trials]
        unknown = [figure for trial in self.trials for figure in trial.judged if figure not in FIGURES]
        if len(set(names)) < len(names) or unknown or not names:
            raise ValueError(f"technique {self.name}: cells {names}, unknown figures {unknown}")
