"""A student: a model of the target's family, begun as a few of its layers, which drafts as any small model does.

Embedding and head are the target's and stay so. They are most of a student's weights, they mean the same in both models
from the start, and without gradients of their own a step reads only the rows of the head that it needs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drut.errors import RequestError
from drut.model.model import ModelFiles
from drut.model.roles import expected_shapes
from drut.model.spec import ModelSpec
from drut.train.batches import Batch
from drut.train.distillation import divergence, head_rows
from drut.train.method import StepLoss, TrainedDrafter
from drut.train.network import hidden
from drut.train.settings import TrainSettings
from drut.train.weights import architecture_of, values_of, write_model

FROZEN = ("embed", "head")


def chosen_layers(spec: ModelSpec, given: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the target's layers that a student begins as: those `given`, else the first, the middle and the last.

    Raises RequestError for one that the target does not have.
    """
    count = len(spec.layers)
    for layer in given:
        if not 0 <= layer < count:
            raise RequestError(f"--layers: the model has layers 0 to {count - 1}, not {layer}")
    return given or tuple(sorted({0, count // 2, count - 1}))


class Student(TrainedDrafter):
    """`spec` is that of the target with `layers` of its layers."""

    def __init__(self, files: ModelFiles, settings: TrainSettings) -> None:
        architecture_of(files)
        self._files, self._negatives, self._bf16 = files, settings.negatives, settings.dtype == "bf16"
        self.layers = chosen_layers(files.spec, settings.layers)
        self.spec = replace(files.spec, layers=tuple(files.spec.layers[i] for i in self.layers))
        self._weights = {role: torch.from_numpy(values_of(files, self._origin(role)))
                         for role in expected_shapes(self.spec)}
        self._head = self._weights["embed" if self.spec.tied_head else "head"]
        self.parameters = {role: w.requires_grad_() for role, w in self._weights.items() if role not in FROZEN}

    def _origin(self, role: str) -> str:
        """Returns the target's role from which a role of the student begins."""
        if not role.startswith("layers."):
            return role
        _, layer, short = role.split(".")
        return f"layers.{self.layers[int(layer)]}.{short}"

    def loss(self, batch: Batch, dice: np.random.Generator) -> StepLoss:
        rows = head_rows(batch.top_ids, self.spec.vocab, self._negatives, dice)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            states = hidden(self.spec, self._weights, torch.from_numpy(batch.tokens)).flatten(0, 1)
            logits = states[torch.from_numpy(batch.rows)] @ self._head[torch.from_numpy(rows.ids)].T
        return divergence(logits.float(), rows, torch.from_numpy(batch.top_logprobs))

    def logits(self, tokens: Tensor) -> Tensor:
        """Returns the logits of every position, (length, vocab), of tokens (length,)."""
        with torch.no_grad():
            return hidden(self.spec, self._weights, tokens[None])[0] @ self._head.T

    def write(self, out: Path) -> None:
        values = {role: w.detach().numpy() for role, w in self._weights.items()}
        write_model(self._files, self.spec, values, out)

    def speculate(self, out: Path) -> str:
        return f"draft:model={out}"

    def facts(self) -> dict[str, Any]:
        trained = sum(p.numel() for p in self.parameters.values())
        return {"layers": list(self.layers), "parameters": self.spec.parameters(), "trained_parameters": trained}


DRAFTER = Student
