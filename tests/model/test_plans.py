"""The operations of each checkpoint: plain as model code records them, and fused as `plans.json` has them."""

from __future__ import annotations

import json

import pytest

from drut.kernels.fusion import fused
from drut.kernels.fusion.rules import EVERY
from drut.kernels.ops import Add, GateUp, Project, Qkv
from tests.golden.weights import NAMES
from tests.model.plans import EXPECTED, Listed, lines, listed, recorded, spec_of

PLANS = {name: Listed(**plan) for name, plan in json.loads(EXPECTED.read_text()).items()}


def test_every_checkpoint_has_its_plan() -> None:
    assert tuple(PLANS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_fused_plans_stay_what_they_are(name: str) -> None:
    plan = fused(recorded(spec_of(name)), EVERY)
    assert listed(plan) == PLANS[name], "\n".join(lines(plan))


@pytest.mark.parametrize("name", NAMES)
def test_model_code_records_nothing_fused(name: str) -> None:
    for op in recorded(spec_of(name)).ops:
        assert not isinstance(op, Qkv | GateUp), op
        assert not (isinstance(op, Project) and op.add), op
        assert not (isinstance(op, Add) and op.norm), op
