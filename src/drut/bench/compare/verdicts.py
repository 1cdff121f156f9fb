"""Ratios and rankings of the valid blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from drut.bench.compare.enough import supported
from drut.bench.compare.ranking import groups
from drut.bench.compare.schema import Block, Cell, Ranking, Ratio
from drut.bench.result.figures import COMPARED, FIGURES
from drut.bench.stats.paired import paired

Figures = Mapping[str, Mapping[int, float]]  # by contestant and round


def figures_of(blocks: Sequence[Block], cell: str, figure: str) -> dict[str, dict[int, float]]:
    """Returns a figure by contestant and round, from valid blocks with a finite value. A rate may be 0; a time of 0 was
    not measured. A percentile that fell on a failure is not a number: its block does not count here, and its failures
    are reported separately."""
    found: dict[str, dict[int, float]] = {}
    least = 0.0 if FIGURES[figure].better == "more" else math.ulp(0.0)
    for block in blocks:
        value = supported(block, figure) if block.cell == cell and block.valid else None
        if isinstance(value, int | float) and least <= value < math.inf:
            found.setdefault(block.contestant, {})[block.round] = float(value)
    return found


def ratios(blocks: Sequence[Block], cells: Sequence[Cell], base: str, names: Sequence[str]) -> list[Ratio]:
    """Returns the ratios of `names` to `base`, in each cell and figure that both have in at least two rounds."""
    found = []
    for cell in cells:
        for figure in COMPARED:
            by_name = figures_of(blocks, cell.name, figure)
            for name in names:
                ratio = paired(by_name.get(name, {}), by_name.get(base, {}))
                if name == base or ratio is None:
                    continue
                better = (ratio.value > 1) == (FIGURES[figure].better == "more")
                found.append(Ratio(cell=cell.name, figure=figure, contestant=name, base=base, value=ratio.value,
                                   low=ratio.low, high=ratio.high, rounds=ratio.rounds,
                                   verdict="level" if not ratio.apart else "better" if better else "worse"))
    return found


def rankings(blocks: Sequence[Block], cells: Sequence[Cell], names: Sequence[str]) -> list[Ranking]:
    """Returns the rankings of `names` by each figure that at least two of them have."""
    found = []
    for cell in cells:
        for figure in COMPARED:
            by_name = {name: rounds for name, rounds in figures_of(blocks, cell.name, figure).items() if name in names}
            if len(by_name) > 1:
                found.append(Ranking(cell.name, figure, groups(by_name, FIGURES[figure].better)))
    return found
