"""Routers and experts."""

from __future__ import annotations

import numpy as np

from drut.kernels import ops
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.numpy import experts
from drut.kernels.numpy.state import NumpyState, Run, data, multiply, normalized


def route(op: ops.Route, state: NumpyState, step: StepDescriptor) -> None:
    y = normalized(op.norm, state.get(op.x))
    correction = None if op.correction is None else data(op.correction)
    gate = None if op.shared_gate is None else data(op.shared_gate)
    routed = experts.choose(op.routing, multiply(op.weight, y), correction, experts.shared_weight(y, gate))
    state.routes[op.routes] = routed
    counts = np.bincount(routed.expert.ravel(), minlength=op.routing.experts)
    state.loads[op.layer] = state.loads.get(op.layer, np.zeros(op.routing.experts, np.int64)) + counts
    state.used[op.layer] = int(np.count_nonzero(counts))


def gate_up(op: ops.ExpertsGateUp, state: NumpyState, step: StepDescriptor) -> None:
    y = normalized(op.norm, state.get(op.x))
    state.set(op.out, experts.gate_up(op, y, state.routes[op.routes]))


def down(op: ops.ExpertsDown, state: NumpyState, step: StepDescriptor) -> None:
    y = experts.down(op, state.get(op.source), state.routes[op.routes])
    state.set(op.x, state.get(op.x) + y)


OPERATIONS: dict[type[ops.Op], Run] = {ops.Route: route, ops.ExpertsGateUp: gate_up, ops.ExpertsDown: down}
