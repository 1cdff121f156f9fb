"""Routers and experts of the NumPy oracle. Pairs of a row and one of its experts are ordered by row, then by rank."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.kernels.numpy.numbers import silu
from drut.kernels.ops import F32, ExpertsDown, ExpertsGateUp, Routing

LIMIT, STEEPNESS = np.float32(7), np.float32(1.702)  # of the clamped form of gpt-oss


class Routed(NamedTuple):
    """The routes of each row: experts by rank and their weights, (rows, top_k), and the shared expert's weight, (rows,
    1)."""

    expert: NDArray[np.int64]
    weight: F32
    shared: F32


def choose(how: Routing, logits: F32, correction: F32 | None, shared: F32) -> Routed:
    """Returns the experts of each row of `logits` (rows, experts)."""
    if how.sigmoid:
        scores = np.float32(1) / (np.float32(1) + np.exp(-logits))
        by = scores if correction is None else scores + correction
    else:
        scores, by = np.exp(logits - logits.max(axis=1, keepdims=True)), logits
    expert = np.argsort(-_in_kept_groups(how, by), axis=1, kind="stable")[:, : how.top_k]  # NaN last
    weight = np.take_along_axis(scores, expert, axis=1)
    if how.normalize:
        weight = weight / (weight.sum(axis=1, keepdims=True) + np.float32(1e-20 if how.sigmoid else 0))
    elif not how.sigmoid:
        weight = weight / scores.sum(axis=1, keepdims=True)
    return Routed(expert, np.asarray(weight * np.float32(how.scale), np.float32), shared)


def _in_kept_groups(how: Routing, by: F32) -> F32:
    """Returns `by` with NaN for the experts in groups that are not kept."""
    if how.groups == 1:
        return by
    grouped = by.reshape(len(by), how.groups, -1)
    best = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
    kept = np.argsort(-best, axis=1, kind="stable")[:, : how.kept_groups]
    mask = np.zeros(best.shape, bool)
    np.put_along_axis(mask, kept, True, axis=1)
    return np.where(mask[:, :, None], grouped, np.float32(np.nan)).reshape(by.shape)


def shared_weight(y: F32, gate: F32 | None) -> F32:
    """Returns sigmoid(y . gate), (rows, 1), row by row; 1 without a gate."""
    if gate is None:
        return np.ones((len(y), 1), np.float32)
    dots = np.stack([row @ gate for row in y])[:, None]
    return np.asarray(np.float32(1) / (np.float32(1) + np.exp(-dots)), np.float32)


def gate_up(op: ExpertsGateUp, y: F32, routed: Routed) -> F32:
    """Returns activation(gate, up) of every pair, (pairs, width)."""
    rows = np.repeat(y, op.routes.top_k, axis=0)
    return activate(op.activation, _each(op.gate, rows, routed), _each(op.up, rows, routed))


def down(op: ExpertsDown, source: F32, routed: Routed) -> F32:
    """Returns the weighted sum over each row's experts, added in rank order."""
    y = _each(op.down, source, routed).reshape(*routed.expert.shape, -1) * routed.weight[:, :, None]
    total = np.zeros_like(y[:, 0])
    for rank in range(y.shape[1]):
        total += y[:, rank]
    return total


def activate(kind: str, gate: F32, up: F32) -> F32:
    """Returns the activation as defined by ExpertsGateUp."""
    if kind == "silu":
        return silu(gate) * up
    gate, up = np.minimum(gate, LIMIT), np.clip(up, -LIMIT, LIMIT)
    return np.asarray(gate / (np.float32(1) + np.exp(-STEEPNESS * gate)) * (up + np.float32(1)), np.float32)


def _each(stack: Any, rows: F32, routed: Routed) -> F32:
    """Returns the product of each pair's row and its expert's matrix."""
    expert = routed.expert.ravel()
    out = np.empty((len(rows), stack.n), np.float32)
    for e in np.unique(expert):
        out[expert == e] = stack.matrices[e].multiply(rows[expert == e])
    return out
