"""What switching a technique does to a figure: on over off, round by round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from drut.bench.ablate.recipe import Recipe
from drut.bench.ablate.schema import Effect
from drut.bench.compare.figures import FIGURES
from drut.bench.compare.schema import Block
from drut.bench.stats.paired import Paired, paired


def effects(recipe: Recipe, blocks: Sequence[Block]) -> list[Effect]:
    """Of all figures the recipe judges, where two rounds at least have both sides. Void blocks and figures that fell on
    failures do not count."""
    found = []
    for trial in recipe.trials:
        for figure, expected in trial.judged.items():
            on, off = (rounds(blocks, recipe.name, side, trial.cell.name, figure) for side in ("on", "off"))
            ratio = paired(on, off)
            if ratio is None:
                continue
            both = on.keys() & off.keys()
            found.append(Effect(recipe.name, trial.cell.name, figure, statistics.median(on[r] for r in both),
                                statistics.median(off[r] for r in both), ratio.value, ratio.low, ratio.high,
                                ratio.rounds, expected, _verdict(ratio, figure)))
    return found


def rounds(blocks: Sequence[Block], technique: str, side: str, cell: str, figure: str) -> dict[int, float]:
    """A figure of one side, by round."""
    found = {}
    for block in blocks:
        value = block.figures.get(figure)
        if (block.contestant == f"{technique}/{side}" and block.cell == cell and block.valid
                and isinstance(value, int | float) and 0 < value < math.inf):
            found[block.round] = float(value)
    return found


def _verdict(ratio: Paired, figure: str) -> Literal["helps", "none", "costs"]:
    if not ratio.apart:
        return "none"
    return "helps" if (ratio.value > 1) == (FIGURES[figure].better == "more") else "costs"
