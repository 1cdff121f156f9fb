"""Medusa: heads on the target's last hidden state, one for each of the next tokens (arXiv 2401.10774).

Head k predicts the token behind the next k + 1 ones: z = h + silu(W1 h + b1), repeated for each block, then logits
W2 z, where h is the residual stream behind the last layer after the target's final norm. There are no keys and values,
and no draft depends on another.

Checkpoints come in two dialects: `{k}.{j}.linear.weight` with `{k}.{blocks}.weight` as the head's matrix, and
`blocks.{k}.layers.{j}.weight` with `lm_heads.{k}.weight`. A head without a matrix uses the target's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from drut.kernels.backend import Backend, BackendLimits, Executable
from drut.kernels.cost import StepShape
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.ops import F32, Activate, Add, Buffer, Head, Norm, Normalize, Project, Sample
from drut.kernels.output import Status
from drut.kernels.plan import Plan, Recorder
from drut.kernels.predictor import Predictor
from drut.kernels.weight import Matrix
from drut.speculate.checkpoint import HeadCheckpoint
from drut.speculate.draft_model import GREEDY
from drut.speculate.drafter import DraftInput, TapDrafter, VerifiedDrafts
from drut.speculate.taps import TapStore

PREFIX = r"(?:model\.)?(?:medusa_heads?\.)?"
BLOCK = (re.compile(PREFIX + r"(\d+)\.(\d+)\.linear\.(weight|bias)"),
         re.compile(PREFIX + r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)"))
HEADS = re.compile(PREFIX + r"lm_heads\.(\d+)\.weight")
LAST = re.compile(PREFIX + r"(\d+)\.(\d+)\.weight")


class MedusaHead(NamedTuple):
    """The names of one head's tensors: weight and bias of each block, and its matrix; None for the target's."""

    blocks: list[tuple[str, str | None]]
    matrix: str | None


def heads_of(checkpoint: HeadCheckpoint) -> list[MedusaHead]:
    """Returns the heads of a checkpoint in either dialect, as many as it has tensors of. Raises ModelFileError if one
    or a block is missing, or for a tensor of no known name."""
    blocks: dict[tuple[int, int], dict[str, str]] = {}
    matrices: dict[int, str] = {}
    for name in checkpoint.names:
        if found := BLOCK[0].fullmatch(name) or BLOCK[1].fullmatch(name):
            blocks.setdefault((int(found[1]), int(found[2])), {})[found[3]] = name
        elif found := HEADS.fullmatch(name) or LAST.fullmatch(name):
            matrices[int(found[1])] = name
        else:
            raise checkpoint.fail(f"tensor {name!r} is none of a Medusa head")
    count = 1 + max((head for head, _ in (*blocks, *((k, 0) for k in matrices))), default=-1)
    made = []
    for k in range(count):
        own = sorted(j for head, j in blocks if head == k)
        if own != list(range(len(own))) or any("weight" not in blocks[k, j] for j in own):
            raise checkpoint.fail(f"head {k} lacks a block")
        if not own and k not in matrices:
            raise checkpoint.fail(f"head {k} is missing")
        made.append(MedusaHead([(blocks[k, j]["weight"], blocks[k, j].get("bias")) for j in own], matrices.get(k)))
    if not made:
        raise checkpoint.fail("it has no Medusa heads")
    return made


def record(checkpoint: HeadCheckpoint, head: MedusaHead, backend: Backend, hidden: int, norm: Norm,
           target_head: Matrix) -> Plan:
    """Returns the plan of one head over rows of the buffer `hidden_rows`. Packs its weights."""
    r, x = Recorder(), hidden_rows(hidden)
    z, y, active = Buffer("z", hidden), Buffer("y", hidden), Buffer("active", hidden)
    r.add(Normalize(0, x, norm, z))
    for weight, bias in head.blocks:
        values = None if bias is None else checkpoint.values(bias)
        if bias is not None:
            checkpoint.demand(bias, hidden)
        r.add(Project(0, z, checkpoint.matrix(backend, weight, hidden, hidden, values), y, add=False))
        r.add(Activate(0, None, y, active))
        r.add(Add(0, active, None, z))
    own = target_head if head.matrix is None else checkpoint.matrix(backend, head.matrix, target_head.n, hidden)
    r.add(Head(z, None, own))
    r.add(Sample(own.n))
    return r.finish()


def hidden_rows(hidden: int) -> Buffer:
    """Returns the buffer that the host fills: the residual stream behind the target's last layer."""
    return Buffer("hidden", hidden)


class Medusa(TapDrafter):
    """Owns an executable for each head. For the engine's thread only."""

    def __init__(self, backend: Backend, plans: Sequence[Plan], hidden: int, seqs: int) -> None:
        """`plans`: of `record`, by head; `seqs`: maximum sequences of a proposal."""
        self._input, self._seqs, self._taps = hidden_rows(hidden), seqs, TapStore(1)
        self._heads: list[Executable] = []
        for plan in plans:
            shared = self._heads[0] if self._heads else None
            self._heads.append(backend.load(plan, [], BackendLimits(seqs, seqs, seqs), shared))
        self._predictor = Predictor(plans[0])
        self._step = StepDescriptor(rows=seqs, seqs=seqs, samples=seqs, blocks=seqs, edits=64)

    def observe(self, sequence: int, epoch: int, start: int, rows: F32) -> None:
        self._taps.put(sequence, epoch, start + len(rows) - 1, rows[-1:])
        self._taps.drop(sequence, start + len(rows) - 1)

    def pace(self, streams: int) -> None:
        """A proposal is one row of each sequence, so it stalls none."""

    def propose(self, inputs: Sequence[DraftInput]) -> list[Sequence[int]]:
        ready = [(given, row) for given in inputs if given.max_drafts > 0
                 and (row := self._taps.get(given.sequence, len(given.tokens) - 2, len(given.tokens) - 1)) is not None]
        ready = ready[: self._seqs]
        drafts: Mapping[int, list[int]] = {given.sequence: [] for given, _ in ready}
        for k, head in enumerate(self._heads):
            rows = [(given, row) for given, row in ready if min(given.max_drafts, len(self._heads)) > k
                    and len(drafts[given.sequence]) == k]
            if rows:
                self._draft(head, rows, drafts)
        return [drafts.get(given.sequence, ()) for given in inputs]

    def _draft(self, head: Executable, rows: Sequence[tuple[DraftInput, F32]],
               drafts: Mapping[int, list[int]]) -> None:
        """Drafts the next token of each sequence, with the noise of the position where the target will sample it."""
        edits = [(given.sampling or GREEDY).edits(drafts[given.sequence]) for given, _ in rows]
        needed = sum(len(e.ids) for e in edits if e is not None)
        if needed > self._step.room[1]:
            self._step = StepDescriptor(rows=self._seqs, seqs=self._seqs, samples=self._seqs, blocks=self._seqs,
                                        edits=2 * needed)
        step = self._step
        step.clear()
        for (given, _), edit in zip(rows, edits, strict=True):
            made, sampling = len(drafts[given.sequence]), given.sampling or GREEDY
            row = step.add_sequence([0], 0, [0], step.seqs)
            step["position"][row] = len(given.tokens) - 1 + made  # no operation but the sampling reads it
            step.add_sample(row, sampling.settings, sampling.seed, sampling.choice, edits=edit)
        head.fill(self._input, np.concatenate([row for _, row in rows]))
        pending = head.launch(step)
        out = pending.result()
        for (given, _), token, status in zip(rows, out.tokens.tolist(), out.status.tolist(), strict=True):
            if status == Status.DRAWN:
                drafts[given.sequence].append(token)
        pending.release()

    def seconds(self, drafts: int, sequences: int, context: int) -> float:
        each = self._predictor.seconds(StepShape.over([(1, 1)] * sequences, sequences))
        return min(drafts, len(self._heads)) * each

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        """Has no state of drafts."""

    def forget(self, sequence: int) -> None:
        self._taps.forget(sequence)

    def method(self, sequence: int) -> str:
        return "medusa"
