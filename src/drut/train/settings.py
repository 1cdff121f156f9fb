"""The settings of a training run. Those that determine data or weights must not change when a run continues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drut.errors import RequestError
from drut.train.files import write_atomically
from drut.train.methods import METHODS

DTYPES = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """`max_tokens`, `temperature` and `seed` determine the answers, the others the training. Raises RequestError, which
    names the flag."""

    method: str = "student"
    layers: tuple[int, ...] = ()  # of the target, which the student begins as; (): first, middle and last
    max_tokens: int = 256  # of an answer
    temperature: float | None = None  # of answers; None: the model's default
    seed: int = 0
    steps: int | None = 2000
    minutes: float | None = None  # of training; counted over all runs that continue it
    batch: int = 8  # answers in a step
    rate: float = 6e-4  # highest learning rate, --lr
    negatives: int = 2048  # rows of the head that stand for all ids outside the targets
    dtype: str = "fp32"  # of the products in training: fp32 or bf16; weights are fp32
    drafts: int = 5  # of a sequence in a step of the evaluation

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise RequestError(f"--method must be one of {', '.join(METHODS)}, not {self.method!r}")
        if self.dtype not in DTYPES:
            raise RequestError(f"--dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}")
        if len(set(self.layers)) < len(self.layers) or list(self.layers) != sorted(self.layers):
            raise RequestError(f"--layers must be rising numbers, not {','.join(map(str, self.layers))}")
        for name, least, most in (("max_tokens", 1, 1 << 20), ("steps", 1, 1 << 30), ("batch", 1, 4096),
                                  ("negatives", 1, 1 << 24), ("drafts", 1, 64)):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise RequestError(f"--{name.replace('_', '-')} must be {least} to {most}, not {value}")
        if self.minutes is not None and not 0 < self.minutes < 1e6:
            raise RequestError(f"--minutes must be above 0, not {self.minutes:g}")
        if not 0 < self.rate < 1:
            raise RequestError(f"--lr must be between 0 and 1, not {self.rate:g}")
        if self.steps is None and self.minutes is None:
            raise RequestError("--steps or --minutes is needed")

    def of_answers(self) -> dict[str, Any]:
        """Returns what determines the answers, as JSON values."""
        return {"max_tokens": self.max_tokens, "temperature": self.temperature, "seed": self.seed}

    def of_training(self) -> dict[str, Any]:
        """Returns what determines the weights with the answers, as JSON values. `minutes` may grow."""
        return {"method": self.method, "layers": list(self.layers) or None, "seed": self.seed, "steps": self.steps,
                "batch": self.batch, "lr": self.rate, "negatives": self.negatives, "dtype": self.dtype}


def check_same(path: Path, before: Mapping[str, Any], now: Mapping[str, Any], remedy: str) -> None:
    """Raises RequestError, which names `path`, the setting and both values, if two records differ."""
    for name, value in now.items():
        if before.get(name) != value:
            raise RequestError(f"{path} has {name} {_shown(before.get(name))}, not {_shown(value)}: {remedy}")


def check_or_write(path: Path, record: Mapping[str, Any], remedy: str) -> None:
    """Writes `record` as JSON to `path`, or compares it with the record there."""
    if path.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise RequestError(f"{path}: not JSON: {remedy}") from None
        check_same(path, before if isinstance(before, dict) else {}, record, remedy)
    else:
        with write_atomically(path) as file:
            file.write(json.dumps(record, indent=1).encode())


def _shown(value: object) -> str:
    if value is None:
        return "by default"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
