"""Plans of the tiny checkpoints as text, with weights known by their roles: what `plans.json` holds.

`python -m tests.model.plans` writes it again, for a change of the operations that models run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from drut.kernels.fusion import fused
from drut.kernels.fusion.rules import EVERY
from drut.kernels.kv import KvLayout
from drut.kernels.ops import Buffer, Norm, Op, Routes
from drut.kernels.plan import Plan
from drut.model.decoder import kv_layouts, record
from drut.model.families import family_of_hf
from drut.model.families.architecture import architecture
from drut.model.roles import expected_shapes
from drut.model.spec import ModelSpec
from drut.model.weights.loader import Weights
from tests.golden.weights import NAMES, config

EXPECTED = Path(__file__).with_name("plans.json")


@dataclass(frozen=True, eq=False)
class Named:
    """A weight known by its role and sizes."""

    role: str
    shape: tuple[int, ...]
    columns = None

    @property
    def n(self) -> int:
        return self.shape[-2]

    @property
    def k(self) -> int:
        return self.shape[-1]


class Listed(NamedTuple):
    """A plan in short: its operations, layers that are alike together, and a digest of all that they are made of."""

    operations: str
    digest: str


def spec_of(name: str) -> ModelSpec:
    cfg = config(name)
    cfg.pop("quantization_config", None)
    named = architecture(cfg, name)
    return family_of_hf(named).from_hf(cfg | {"architectures": [named]}, name)


def recorded(spec: ModelSpec) -> Plan:
    """The operations that model code records, over weights that are names."""
    named: dict[str, Any] = {role: Named(role, shape) for role, shape in expected_shapes(spec).items()}
    return record(spec, Weights(named, named, named), kv_layouts(spec, "bf16"))


def lines(plan: Plan) -> Iterator[str]:
    """An operation a line with its settings, without those that have their default; and where segments end."""
    for segment in plan.segments:
        for op in segment.ops:
            settings = [(f, getattr(op, f.name)) for f in fields(op)]  # type: ignore[arg-type]
            yield f"{type(op).__name__} " + " ".join(
                f"{f.name}={_text(value)}" for f, value in settings if f.default is MISSING or value != f.default)
        yield f"stop {segment.stop}"


def _text(value: object) -> str:
    if isinstance(value, Named):
        return value.role
    if isinstance(value, Buffer):
        return f"{value.name}:{value.width}x{value.copies}"
    if isinstance(value, Routes):
        return value.name
    if isinstance(value, KvLayout):
        return f"group{value.group}"
    if isinstance(value, Norm):
        return "/".join(_text(part) for part in (value.weight, value.eps, value.centred, value.bias))
    if isinstance(value, tuple) and len(value) > 2:  # frequencies, whose last digits are the mathematical library's
        return f"{len(value)} numbers"
    return repr(value)


def listed(plan: Plan) -> Listed:
    def layer(op: Op) -> int:
        return getattr(op, "layer", -1)

    layers = [" ".join(type(op).__name__ for op in run) for _, run in groupby(plan.ops, layer)]
    alike = [(names, len(list(run))) for names, run in groupby(layers)]
    text = ", ".join(names if count == 1 else f"{count} x ({names})" for names, count in alike)
    return Listed(text, hashlib.sha256("\n".join(lines(plan)).encode()).hexdigest()[:16])


if __name__ == "__main__":
    plans = {name: listed(fused(recorded(spec_of(name)), EVERY)) for name in NAMES}
    EXPECTED.write_text(json.dumps({name: plan._asdict() for name, plan in plans.items()}, indent=1) + "\n")
