"""Recipes and blocks to try the arithmetic on."""

from __future__ import annotations

from typing import Any

from drut.bench.ablate.recipe import AblationRecipe, AblationTrial, Side
from drut.bench.compare.schema import Block, Cell

FAST, SLOW = Cell("fast", "gsm8k", concurrency=1), Cell("slow", "gsm8k", concurrency=2)


def recipe(name: str = "cache", on: tuple[str, ...] = ("--cache",),
           off: tuple[str, ...] = ("--no-cache",)) -> AblationRecipe:
    """Judged by output on `fast`, where it should help, and by TPOT on `slow`, where it should not."""
    return AblationRecipe(name=name, title="A cache", about="It keeps.", theory="It should help.", on=Side(on),
                          off=Side(off),
                          trials=(AblationTrial(FAST, {"output_tokens_per_s": "helps"}),
                                  AblationTrial(SLOW, {"tpot_ms_p50": "no effect"})))


def block(number: int, side: str, cell: str = "fast", *, valid: bool = True, name: str = "cache",
          **figures: Any) -> Block:
    return Block(round=number, turn=0, contestant=f"{name}/{side}", cell=cell, valid=valid,
                 reasons=[] if valid else ["the client sent late"], figures=figures, samples={})
