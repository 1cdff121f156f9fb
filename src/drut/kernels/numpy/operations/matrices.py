"""Operations around one or two matrices, and their parts."""

from __future__ import annotations

import numpy as np

from drut.kernels import ops
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.numpy.numbers import ACTIVATIONS
from drut.kernels.numpy.state import NumpyState, Run, multiply, normalized


def project(op: ops.Project, state: NumpyState, step: StepDescriptor) -> None:
    y = multiply(op.weight, state.get(op.source))
    if op.shared is not None:
        y = y * state.routes[op.shared].shared
    state.set(op.x, state.get(op.x) + np.float32(op.scale) * y if op.add else y)


def normalize(op: ops.Normalize, state: NumpyState, step: StepDescriptor) -> None:
    state.set(op.out, normalized(op.norm, state.get(op.x)))


def tap(op: ops.Tap, state: NumpyState, step: StepDescriptor) -> None:
    held = state.values.get(op.out)
    out = np.zeros((step.rows, op.out.width), np.float32) if held is None or len(held) != step.rows else held.copy()
    out[:, op.column : op.column + op.x.width] = state.get(op.x)
    state.set(op.out, out)


def activate(op: ops.Activate, state: NumpyState, step: StepDescriptor) -> None:
    up, activation = state.get(op.up), ACTIVATIONS[op.activation]
    state.set(op.out, activation(up) if op.gate is None else activation(state.get(op.gate)) * up)


def add(op: ops.Add, state: NumpyState, step: StepDescriptor) -> None:
    y = normalized(op.norm, state.get(op.source))
    state.set(op.x, state.get(op.x) + np.float32(op.scale) * y)


def gate_up(op: ops.GateUp, state: NumpyState, step: StepDescriptor) -> None:
    y, activation = normalized(op.norm, state.get(op.x)), ACTIVATIONS[op.activation]
    up = multiply(op.up, y)
    state.set(op.out, activation(up) if op.gate is None else activation(multiply(op.gate, y)) * up)


OPERATIONS: dict[type[ops.Op], Run] = {ops.Project: project, ops.Normalize: normalize, ops.Activate: activate,
                                       ops.Add: add, ops.GateUp: gate_up, ops.Tap: tap}
