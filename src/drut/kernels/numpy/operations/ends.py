"""The first and last operations of a step: embedding and rope tables, head and sampling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drut.kernels import ops
from drut.kernels.descriptor import RELAY, Edits, StepDescriptor
from drut.kernels.numpy import sampling
from drut.kernels.numpy.numbers import capped
from drut.kernels.numpy.state import NumpyState, Run, multiply, normalized
from drut.kernels.ops import F32
from drut.kernels.output import Status, StepOutput


def embed(op: ops.Embed, state: NumpyState, step: StepDescriptor) -> None:
    token, seq = step["token"][: step.rows], step["seq"][: step.rows]
    ids = np.where(token == RELAY, state.relay[step["relay_slot"][seq]], token).astype(np.int32)
    rows: F32 = op.table.rows(ids)  # type: ignore[attr-defined]
    state.set(op.x, rows * np.float32(op.scale))


def rope_table(op: ops.RopeTable, state: NumpyState, step: StepDescriptor) -> None:
    angle = step["position"][: step.rows, None] * np.array(op.inv_freq)
    table = np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    state.set(op.rope, table * np.float32(op.scale))


def head(op: ops.Head, state: NumpyState, step: StepDescriptor) -> None:
    x = state.get(op.x)[step["sample_row"][: step.samples]]
    if len(x):
        x = capped(multiply(op.weight, normalized(op.norm, x)) * np.float32(op.scale), op.cap)
    state.logits = x


def sample(op: ops.Sample, state: NumpyState, step: StepDescriptor) -> None:
    state.out = StepOutput.zeros(step.samples)
    draw(state, step, range(step.samples))


def draw(state: NumpyState, step: StepDescriptor, samples: Sequence[int]) -> None:
    """Writes the outputs of `samples`, which must be empty, and their relay slots."""
    for i in samples:
        logits, target = state.logits[i], int(step["target"][i])
        status = Status.DRAWN if np.isfinite(logits).all() else Status.NOT_FINITE
        token = max(target, 0)
        if status is Status.DRAWN and target < 0:
            z = _allowed(_edited(logits, step, i), step, i)
            status = Status.DRAWN if np.isfinite(z.max()) else Status.NONE_LEFT
            token = _drawn(z, step, i) if status is Status.DRAWN else 0
        if step["relay"][i] >= 0:
            state.relay[step["relay"][i]] = token
        state.out.tokens[i], state.out.status[i] = token, status
        if status is Status.DRAWN and step["top_logprobs"][i] >= 0:
            _report(state.out, i, logits, token, int(step["top_logprobs"][i]))


def _report(out: StepOutput, i: int, logits: F32, token: int, wanted: int) -> None:
    logprobs = sampling.logprobs(logits)
    out.logprobs[i], out.ranks[i] = logprobs[token], sampling.rank(logits, token)
    top = sampling.by_value(logits)[:wanted]
    out.top_ids[i, : len(top)], out.top_logprobs[i, : len(top)] = top, logprobs[top]


def _edited(logits: F32, step: StepDescriptor, i: int) -> F32:
    listed = slice(step["edit_first"][i], step["edit_first"][i] + step["edit_count"][i])
    edits = Edits(step["edit_id"][listed], step["edit_bias"][listed], step["edit_count_out"][listed],
                  step["edit_seen"][listed])
    return sampling.edited(logits, edits, repetition=step["repetition"][i], presence=step["presence"][i],
                           frequency=step["frequency"][i])


def _allowed(z: F32, step: StepDescriptor, i: int) -> F32:
    first = int(step["mask"][i])
    return z if first < 0 else sampling.allowed(z, step.mask(first, len(z)))


def _drawn(z: F32, step: StepDescriptor, i: int) -> int:
    seed = (int(step["seed_hi"][i]) & 0xFFFFFFFF) << 32 | int(step["seed_lo"][i]) & 0xFFFFFFFF
    position = int(step["position"][step["sample_row"][i]]) + 1
    return sampling.sample(z, temperature=float(step["temperature"][i]), top_k=int(step["top_k"][i]),
                           top_p=float(step["top_p"][i]), min_p=float(step["min_p"][i]), seed=seed, position=position,
                           choice=int(step["choice"][i]))


OPERATIONS: dict[type[ops.Op], Run] = {ops.Embed: embed, ops.RopeTable: rope_table, ops.Head: head, ops.Sample: sample}
