"""The loss: KL divergence of the drafter from the target, over a part of the vocabulary.

The target's distribution is known at its TOP likeliest ids, and as one class for all others. The drafter's is computed
at these ids and at random others, whose exponentials stand for all of the rest: an unbiased estimate of the softmax's
denominator. So a step reads a few thousand rows of the head instead of all, which cost several times the layers of a
student.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from drut.train.method import StepLoss


class HeadRows(NamedTuple):
    """The rows of the head for a batch: those of all target ids, each once, then the sampled ones."""

    ids: NDArray[np.int64]
    places: NDArray[np.int64]  # (n, k): where each target id is in `ids`
    sampled: int
    log_weight: float  # log of how many ids a sampled one stands for


def head_rows(top_ids: NDArray[np.int64], vocab: int, negatives: int, dice: np.random.Generator) -> HeadRows:
    """Returns the rows for targets (n, k). All ids are in them if there are no more than `negatives` others."""
    targets, places = np.unique(top_ids, return_inverse=True)
    others = np.setdiff1d(np.arange(vocab), targets, assume_unique=True)
    count = min(negatives, len(others))
    drawn = dice.choice(others, count, replace=False)
    log_weight = math.log(len(others) / count) if count else 0.0
    return HeadRows(np.concatenate((targets, drawn)), places.reshape(top_ids.shape), count, log_weight)


def divergence(logits: Tensor, rows: HeadRows, top_logprobs: Tensor) -> StepLoss:
    """Returns the mean KL divergence over the n rows of `logits` (n, ids of `rows`), in nats.

    Both distributions have k + 1 classes: the target's k likeliest ids, and all others.
    """
    index = torch.from_numpy(rows.places)
    top = logits.gather(1, index)
    rest = logits.scatter(1, index, -math.inf)
    if rows.sampled:
        targets = len(rows.ids) - rows.sampled
        rest = torch.cat((rest[:, :targets], rest[:, targets:] + rows.log_weight), 1)
    log_q = functional.log_softmax(torch.cat((top, rest.logsumexp(1, keepdim=True)), 1), 1)
    p = top_logprobs.exp()
    p = torch.cat((p, (1 - p.sum(1, keepdim=True)).clamp(min=0)), 1)
    loss = functional.kl_div(log_q, p, reduction="batchmean")
    overlap = torch.minimum(log_q.detach().exp(), p)[:, :-1].sum(1).mean()
    return StepLoss(loss, overlap.item())
