"""The methods of training a drafter. A method is a row here and a module of its name with a class `Drafter`, which is
imported, and torch with it, only when it is chosen."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drut.train.method import TrainedDrafter

METHODS = {
    "student": "a model of the target's family with a few of its layers, trained to the target's distribution",
}


def drafter_of(method: str) -> type[TrainedDrafter]:
    """Returns the class of a method."""
    drafter: type[TrainedDrafter] = importlib.import_module(f"drut.train.methods.{method}").DRAFTER
    return drafter
