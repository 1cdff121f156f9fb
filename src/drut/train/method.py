"""What a method of training provides. The trainer knows parameters and a loss, nothing of the drafter's form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from drut.model.model import ModelFiles
from drut.train.batches import Batch
from drut.train.settings import TrainSettings


class StepLoss(NamedTuple):
    """The loss of a batch, a scalar, and the mean overlap of the distributions of drafter and target: sum min(p, q)
    over the target's likeliest ids, a lower bound of 1 - d, where d is the total variation distance."""

    loss: Tensor
    overlap: float


class TrainedDrafter(ABC):
    """A drafter in training, made from an open target. Raises UnsupportedError for a target that it cannot learn."""

    parameters: Mapping[str, Tensor]  # that are trained

    @abstractmethod
    def __init__(self, files: ModelFiles, settings: TrainSettings) -> None: ...

    @abstractmethod
    def loss(self, batch: Batch, dice: np.random.Generator) -> StepLoss:
        """Returns the loss; all that is random in it comes from `dice`."""

    @abstractmethod
    def write(self, out: Path) -> None:
        """Writes the files of the drafter into the folder `out`."""

    @abstractmethod
    def speculate(self, out: Path) -> str:
        """Returns the value of the setting `speculate` that loads the drafter from `out`, without further options."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Returns what the report states of its form, as JSON values."""
