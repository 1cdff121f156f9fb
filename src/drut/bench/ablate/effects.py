"""The effect of a technique on a figure: the ratio on/off by round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from drut.bench.ablate.recipe import AblationRecipe
from drut.bench.ablate.schema import Effect
from drut.bench.compare.schema import Block
from drut.bench.compare.verdicts import figures_of
from drut.bench.result.figures import FIGURES
from drut.bench.stats.paired import Paired, paired


def effects(recipe: AblationRecipe, blocks: Sequence[Block]) -> list[Effect]:
    """Returns the effects on all figures that the recipe judges, if at least two rounds have both sides. Void blocks
    and figures that fell on failures do not count."""
    found = []
    for trial in recipe.trials:
        for figure, expected in trial.judged.items():
            by_name = figures_of(blocks, trial.cell.name, figure)
            on, off = (by_name.get(f"{recipe.name}/{side}", {}) for side in ("on", "off"))
            ratio = paired(on, off)
            if ratio is None:
                continue
            both = on.keys() & off.keys()
            found.append(Effect(technique=recipe.name, cell=trial.cell.name, figure=figure,
                                on=statistics.median(on[r] for r in both), off=statistics.median(off[r] for r in both),
                                ratio=ratio.value, low=ratio.low, high=ratio.high, rounds=ratio.rounds,
                                expected=expected, verdict=_verdict(ratio, figure)))
    return found


def _verdict(ratio: Paired, figure: str) -> Literal["helps", "none", "costs"]:
    if not ratio.apart:
        return "none"
    return "helps" if (ratio.value > 1) == (FIGURES[figure].better == "more") else "costs"
