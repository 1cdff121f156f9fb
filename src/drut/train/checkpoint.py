"""Checkpoints: all that a run needs to continue as if it had not ended. A checkpoint is a folder that is renamed to its
step when it is complete; then older ones are removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from drut.errors import RequestError
from drut.formats.planes import F32

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class TrainState:
    """Steps and seconds of training so far, and moving averages of loss and overlap."""

    step: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    overlap: float = 0.0


def save(folder: Path, state: TrainState, parameters: Mapping[str, Tensor], optimizer: torch.optim.AdamW) -> None:
    """Writes the checkpoint of `state`, and removes earlier ones."""
    made, partial = folder / f"{state.step:08}", folder / ".partial"
    if made.exists():
        return
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    np.save(partial / "weights.npy", _flat(parameters))
    for name in MOMENTS:
        np.save(partial / f"{name}.npy", _flat({role: optimizer.state[p][name] for role, p in parameters.items()}))
    (partial / "state.json").write_text(json.dumps(vars(state)), encoding="utf-8")
    os.rename(partial, made)
    for old in _all(folder):
        if old != made:
            shutil.rmtree(old)


def load(folder: Path, parameters: Mapping[str, Tensor], optimizer: torch.optim.AdamW) -> TrainState:
    """Puts the latest checkpoint into parameters and optimizer, and returns its state; a new state without one.

    Raises RequestError, which names the checkpoint, if it is damaged or of other parameters.
    """
    found = _all(folder)
    if not found:
        return TrainState()
    try:
        state = TrainState(**json.loads((found[-1] / "state.json").read_text(encoding="utf-8")))
        _fill(parameters, found[-1] / "weights.npy")
        moments = {name: {role: torch.zeros_like(p) for role, p in parameters.items()} for name in MOMENTS}
        for name in MOMENTS:
            _fill(moments[name], found[-1] / f"{name}.npy")
    except (OSError, ValueError, TypeError) as error:
        raise RequestError(f"{found[-1]}: {error}; remove {folder} to train again") from None
    for role, p in parameters.items():
        optimizer.state[p] = {"step": torch.tensor(float(state.step)), **{n: moments[n][role] for n in MOMENTS}}
    return state


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*"))


def _flat(tensors: Mapping[str, Tensor]) -> F32:
    return np.concatenate([tensors[role].detach().numpy().ravel() for role in sorted(tensors)])


def _fill(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copies the file's values into the tensors, in the order of their names."""
    values, at = np.lib.format.open_memmap(path, mode="r"), 0
    if values.shape != (sum(t.numel() for t in tensors.values()),):
        raise ValueError(f"{path.name} is of other parameters")
    with torch.no_grad():
        for role in sorted(tensors):
            t = tensors[role]
            t.copy_(torch.from_numpy(values[at : at + t.numel()].copy()).view_as(t))
            at += t.numel()
