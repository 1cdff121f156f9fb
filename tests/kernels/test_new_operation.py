"""An operation that the package does not know: its cost, how NumPy runs it, and the error of other backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from drut.errors import UnsupportedError
from drut.kernels.backend import Backend
from drut.kernels.cost import Cost, CostRate, StepShape
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.fusion import fused
from drut.kernels.fusion.rules import EVERY
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.numpy.operations.table import OPERATIONS
from drut.kernels.numpy.state import NumpyState, Run
from drut.kernels.ops import Buffer, Embed, Head, Norm, Op, Sample
from drut.kernels.plan import Plan
from drut.observe.ledger import Macs
from tests.kernels.conftest import Native
from tests.kernels.rig import Draw, Ran, floats, oracle, recorded


@dataclass(frozen=True)
class Reverse(Op):
    """out[row] = the elements of x[row], last first."""

    x: Buffer
    out: Buffer

    @property
    def rate(self) -> CostRate:
        return CostRate(row=Cost(0, Macs(floats=self.x.width)))


def reverse(op: Reverse, state: NumpyState, step: StepDescriptor) -> None:
    assert len(state.get(op.x)) == step.rows
    state.set(op.out, state.get(op.x)[:, ::-1])


TABLE: Mapping[type[Op], Run] = {**OPERATIONS, Reverse: reverse}


def plan_on(backend: Backend) -> Plan:
    """The token drawn after token t of 32 is 31 - t."""
    x, y, table = Buffer("x", 32), Buffer("y", 32), floats(np.eye(32)).on(backend)
    return recorded(Embed(table, x), Reverse(x, y), Head(y, Norm(backend.vector(np.ones(32, np.float32)), 1e-5), table),
                    Sample(32))


def test_a_plan_with_it_runs_where_it_is_in_the_table() -> None:
    backend = NumpyBackend(TABLE)
    plan = plan_on(backend)
    ran = Ran(backend, plan, rows=3, samples=3)
    ran.step.add_sequence([3, 30, 0], 0, [0], 0)
    for row in range(3):
        ran.step.add_sample(row, Draw())
    assert ran.executable.run(ran.step).tokens.tolist() == [28, 1, 31]
    assert fused(plan, EVERY) == plan
    shape = StepShape(rows=3, samples=3, kv_tokens=3, row_tokens=6)
    assert plan.cost(shape).macs == Macs(floats=3 * 32) + plan.ops[2].cost(shape).macs


def test_elsewhere_the_error_names_it(native: Native) -> None:
    for backend in (oracle(), native()):
        with pytest.raises(UnsupportedError, match="kernels have no operation Reverse"):
            Ran(backend, plan_on(backend), rows=3)
    assert Reverse not in OPERATIONS
