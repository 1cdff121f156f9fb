"""What an ablation has found so far: kept in its folder after each block, and gone on with from there."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from drut.bench.ablate.effects import effects
from drut.bench.ablate.markdown import summary
from drut.bench.ablate.recipe import Recipe, Side
from drut.bench.ablate.schema import SCHEMA, Ablation, Effect, Technique
from drut.bench.ablate.words import shows
from drut.bench.compare.order import Turn, turns
from drut.bench.compare.schema import Block, Contestant
from drut.bench.files import read_file, write_file
from drut.bench.result.build import environment
from drut.errors import RequestError

JSON = "ablation.json"


def empty(model: str, settings: dict[str, Any]) -> Ablation:
    """Nothing measured yet."""
    return Ablation(schema=SCHEMA, settings=settings, environment={}, model=model, techniques=[], cells=[],
                    contestants=[], blocks=[], effects=[])


def read(path: Path) -> Ablation:
    """An ablation.json. Raises DrutError where it is missing, damaged or of another schema."""
    return read_file(path, Ablation, SCHEMA, "an ablation")


def contestants(recipe: Recipe) -> dict[str, Side]:
    """Its two servers, by the names that blocks have."""
    return {f"{recipe.name}/on": recipe.on, f"{recipe.name}/off": recipe.off}


class Book:
    """The ablation in `folder`. Every change is written at once."""

    def __init__(self, folder: Path, ablation: Ablation) -> None:
        self.folder, self.ablation = folder, ablation

    @classmethod
    def resumed(cls, folder: Path, model: str, settings: dict[str, Any]) -> Book:
        """Goes on with what the folder holds, nothing perhaps. RequestError where that was measured in another way."""
        path = folder / JSON
        if not path.exists():
            return cls(folder, empty(model, settings))
        found = read(path)
        for name, before, now in [("model", found.model, model),
                                  *[(name, found.settings.get(name), now) for name, now in settings.items()]]:
            if before != now:
                raise RequestError(f"--resume: {path} was measured with {name} {before}, not {now}")
        return cls(folder, found)

    def add(self, recipe: Recipe) -> None:
        """Makes place for a technique. RequestError where another of its name was measured before."""
        self.place(recipe)
        self.write()

    def place(self, recipe: Recipe) -> None:
        """As `add`, and writes nothing."""
        technique = _technique(recipe)
        for other in self.ablation.techniques:
            if other.name == technique.name and (other.on, other.off) != (technique.on, technique.off):
                raise RequestError(f"--resume: {technique.name} was measured with other flags: {' '.join(other.on)} "
                                   f"and {' '.join(other.off)}")
        cells = [trial.cell for trial in recipe.trials]
        known = {cell.name: cell for cell in self.ablation.cells}
        for cell in cells:
            if known.get(cell.name, cell) != cell:
                raise RequestError(f"--resume: the cell {cell.name!r} was another one: {known[cell.name].workload}")
        new = [cell for cell in cells if cell.name not in known]
        if technique.name not in [other.name for other in self.ablation.techniques]:
            self._change(techniques=[*self.ablation.techniques, technique], cells=[*self.ablation.cells, *new])

    def missing(self, recipe: Recipe, rounds: int) -> list[Turn]:
        """The turns still to be taken, in order. A round's turns at a cell are taken again where one is missing or
        void: only both sides in the same minutes can be compared."""
        names, cells = list(contestants(recipe)), [trial.cell.name for trial in recipe.trials]
        had = {(b.round, b.cell, b.contestant) for b in self.ablation.blocks if b.valid}
        return [turn for turn in turns(rounds, cells, names)
                if any((turn.round, turn.cell, name) not in had for name in names)]

    def forget(self, turns: Sequence[Turn]) -> None:
        """Drops what there is of these: one side that is taken now must not stand beside the other of earlier."""
        keys = {(turn.round, turn.cell, turn.contestant) for turn in turns}
        self._change(blocks=[b for b in self.ablation.blocks if (b.round, b.cell, b.contestant) not in keys])

    def told(self, contestant: Contestant) -> None:
        """What became of a server; of the same name the last counts."""
        self._change(contestants=[*(c for c in self.ablation.contestants if c.name != contestant.name), contestant])
        self.write()

    def block(self, recipe: Recipe, block: Block) -> list[Effect]:
        """Keeps a block, in the place of one that was taken at the same turn; returns the technique's effects now."""
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
        """ablation.json, ablation.csv, summary.md. Raises DrutError."""
        data = msgspec.json.encode(self.ablation).decode()
        write_file(self.folder / JSON, lambda file: file.write(data))
        write_file(self.folder / "ablation.csv", lambda file: _csv(self.ablation.effects, file))
        write_file(self.folder / "summary.md", lambda file: print(summary(self.ablation), file=file))

    def _change(self, **fields: Any) -> None:
        self.ablation = msgspec.structs.replace(self.ablation, **fields)


def _technique(recipe: Recipe) -> Technique:
    return Technique(recipe.name, recipe.title, f"{recipe.about} {recipe.theory}", _switched(recipe.on),
                     _switched(recipe.off))


def _switched(side: Side) -> list[str]:
    return [*side.flags, *([f"weights={side.weights}"] if side.weights else [])]


def _csv(effects: Sequence[Effect], file: TextIO) -> None:
    rows = csv.writer(file)
    rows.writerow(Effect.__struct_fields__)
    rows.writerows(msgspec.structs.astuple(effect) for effect in effects)
