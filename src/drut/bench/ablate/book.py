"""The results of an ablation so far: saved in its folder after each block, and resumed from there."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from drut.bench.ablate.effects import effects
from drut.bench.ablate.markdown import summary
from drut.bench.ablate.recipe import AblationRecipe, Side
from drut.bench.ablate.schema import SCHEMA, Ablation, Effect, Technique
from drut.bench.ablate.words import shows
from drut.bench.compare.order import OrderTurn, turns
from drut.bench.compare.schema import Block, Contestant
from drut.bench.files import read_file, write_file
from drut.bench.result.build import environment
from drut.errors import RequestError

JSON = "ablation.json"


def empty(model: str, settings: dict[str, Any]) -> Ablation:
    """Returns an ablation without results."""
    return Ablation(schema=SCHEMA, settings=settings, environment={}, model=model, techniques=[], cells=[],
                    contestants=[], blocks=[], effects=[])


def read(path: Path) -> Ablation:
    """Reads an ablation.json. Raises DrutError if it is missing, damaged or of another schema."""
    return read_file(path, Ablation, SCHEMA, "an ablation")


def contestants(recipe: AblationRecipe) -> dict[str, Side]:
    """Returns the two servers of a recipe, by the names used in blocks."""
    return {f"{recipe.name}/on": recipe.on, f"{recipe.name}/off": recipe.off}


class Book:
    """The ablation in `folder`. Every change is written at once."""

    def __init__(self, folder: Path, ablation: Ablation) -> None:
        self.folder, self.ablation = folder, ablation

    @classmethod
    def resumed(cls, folder: Path, model: str, settings: dict[str, Any]) -> Book:
        """Resumes from the folder, which may be empty. Raises RequestError if its results were measured with other
        settings."""
        path = folder / JSON
        if not path.exists():
            return cls(folder, empty(model, settings))
        found = read(path)
        for name, before, now in [("model", found.model, model),
                                  *[(name, found.settings.get(name), now) for name, now in settings.items()]]:
            if before != now:
                raise RequestError(f"--resume: {path} was measured with {name} {before}, not {now}")
        return cls(folder, found)

    def add(self, recipe: AblationRecipe) -> None:
        """Adds a technique. Raises RequestError if another technique with its name was measured before."""
        self.place(recipe)
        self.write()

    def place(self, recipe: AblationRecipe) -> None:
        """Adds a technique without writing files."""
        technique = _technique(recipe)
        for other in self.ablation.techniques:
            if other.name == technique.name and (other.on, other.off) != (technique.on, technique.off):
                raise RequestError(f"--resume: {technique.name} was measured with other flags: {' '.join(other.on)} "
                                   f"and {' '.join(other.off)}")
        cells = [trial.cell for trial in recipe.trials]
        known = {cell.name: cell for cell in self.ablation.cells}
        for cell in cells:
            if known.get(cell.name, cell) != cell:
                raise RequestError(f"--resume: the cell {cell.name!r} was measured with other work: "
                                   f"{known[cell.name].workload}")
        new = [cell for cell in cells if cell.name not in known]
        if technique.name not in [other.name for other in self.ablation.techniques]:
            self._change(techniques=[*self.ablation.techniques, technique], cells=[*self.ablation.cells, *new])

    def missing(self, recipe: AblationRecipe, rounds: int) -> list[OrderTurn]:
        """Returns the missing turns, in order. If one turn of a round at a cell is missing or void, all turns of that
        round and cell are taken again, because only sides measured at the same time can be compared."""
        names, cells = list(contestants(recipe)), [trial.cell.name for trial in recipe.trials]
        had = {(b.round, b.cell, b.contestant) for b in self.ablation.blocks if b.valid}
        return [turn for turn in turns(rounds, cells, names)
                if any((turn.round, turn.cell, name) not in had for name in names)]

    def forget(self, turns: Sequence[OrderTurn]) -> None:
        """Drops existing results of these turns: a side measured now must not be compared with one measured earlier."""
        keys = {(turn.round, turn.cell, turn.contestant) for turn in turns}
        self._change(blocks=[b for b in self.ablation.blocks if (b.round, b.cell, b.contestant) not in keys])

    def record_outcome(self, contestant: Contestant) -> None:
        """Records the outcome of a server; the last outcome of a name counts."""
        self._change(contestants=[*(c for c in self.ablation.contestants if c.name != contestant.name), contestant])
        self.write()

    def block(self, recipe: AblationRecipe, block: Block) -> list[Effect]:
        """Stores a block in place of an earlier one of the same turn; returns the technique's effects so far."""
        key = block.round, block.cell, block.contestant
        blocks = [*(b for b in self.ablation.blocks if (b.round, b.cell, b.contestant) != key), block]
        mine = [b for b in blocks if b.contestant in contestants(recipe)]
        found = effects(recipe, mine)
        self._change(
            blocks=blocks, effects=[*(e for e in self.ablation.effects if e.technique != recipe.name), *found],
            environment=self.ablation.environment or environment(time.time()),
            techniques=[msgspec.structs.replace(t, shows=shows(found, mine)) if t.name == recipe.name else t
                        for t in self.ablation.techniques])
        self.write()
        return found

    def write(self) -> None:
        """Writes ablation.json, ablation.csv and summary.md. Raises DrutError."""
        data = msgspec.json.encode(self.ablation).decode()
        write_file(self.folder / JSON, lambda file: file.write(data))
        write_file(self.folder / "ablation.csv", lambda file: _csv(self.ablation.effects, file))
        write_file(self.folder / "summary.md", lambda file: print(summary(self.ablation), file=file))

    def _change(self, **fields: Any) -> None:
        self.ablation = msgspec.structs.replace(self.ablation, **fields)


def _technique(recipe: AblationRecipe) -> Technique:
    return Technique(recipe.name, recipe.title, f"{recipe.about} {recipe.theory}", _switched(recipe.on),
                     _switched(recipe.off))


def _switched(side: Side) -> list[str]:
    return [*side.flags, *([f"weights={side.weights}"] if side.weights else [])]


def _csv(effects: Sequence[Effect], file: TextIO) -> None:
    rows = csv.writer(file)
    rows.writerow(Effect.__struct_fields__)
    rows.writerows(msgspec.structs.astuple(effect) for effect in effects)
