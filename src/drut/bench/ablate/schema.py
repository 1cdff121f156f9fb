"""The schema of `ablation.json`. SCHEMA changes when a field is removed or changes its meaning."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from drut.bench.compare.schema import Block, Cell, Contestant

SCHEMA = "drut.ablation/1"


class Effect(msgspec.Struct, frozen=True):
    """The ratio on/off of a figure in a cell, with a 95 % interval over rounds. `expected`: the prediction of theory.
    `verdict` "none": the interval contains 1, which does not prove that there is no effect."""

    technique: str
    cell: str
    figure: str
    on: float
    off: float
    ratio: float
    low: float
    high: float
    rounds: int
    expected: Literal["helps", "no effect", "costs"]
    verdict: Literal["helps", "none", "costs"]


class Technique(msgspec.Struct, frozen=True):
    """A technique. `on` and `off` are the flags of the two servers; `about` describes it, `shows` is a text made from
    the figures."""

    name: str
    title: str
    about: str
    on: list[str]
    off: list[str]
    shows: str = ""


class Ablation(msgspec.Struct, frozen=True):
    """The whole file. Contestants are named TECHNIQUE/on and TECHNIQUE/off."""

    schema: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    model: str
    techniques: list[Technique]
    cells: list[Cell]
    contestants: list[Contestant]
    blocks: list[Block]
    effects: list[Effect]
    notes: list[str] = []
