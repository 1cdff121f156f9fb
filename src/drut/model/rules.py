"""Bounds of a model's sizes. A spec outside of them is refused, with the name of the size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drut.errors import UnsupportedError

LIMITS = {
    "vocab": 1 << 22, "hidden": 1 << 17, "layers": 1 << 12, "heads": 1 << 12, "head_dim": 256, "ffn width": 1 << 19,
    "context": 1 << 27, "experts": 1024,
}


@dataclass(frozen=True)
class Rules:
    """Checks that raise UnsupportedError, which names the model `where`, if a demand is not met."""

    where: str

    def demand(self, ok: bool, what: str) -> None:
        if not ok:
            raise UnsupportedError(f"{self.where}: {what}")

    def bounded(self, name: str, value: Any) -> None:
        """Checks that `value` is from 1 to LIMITS[name]."""
        self.demand(1 <= value <= LIMITS[name], f"{name} {value} is outside 1..{LIMITS[name]}")
