"""`ablation.json`, as data. SCHEMA changes when a field changes its meaning or goes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from drut.bench.compare.schema import Block, Cell, Contestant

SCHEMA = "drut.ablation/1"


class Effect(msgspec.Struct, frozen=True):
    """On over off in a figure of a cell, with a 95 % interval over rounds. `expected`: what theory says of it there.
    `verdict` "none": the interval holds 1, which is not to say that there is no effect."""

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
    """What is switched. `on` and `off` are the flags of the two servers; `about` says what it is, `shows` what the
    figures say of it, made of them."""

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
