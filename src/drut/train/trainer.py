"""The training loop: AdamW with warm-up, a cosine to a tenth of the rate, and clipped gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from drut.train import checkpoint
from drut.train.batches import Batches
from drut.train.checkpoint import TrainState
from drut.train.method import TrainedDrafter
from drut.train.settings import TrainSettings

WARM_UP = 50  # steps
LAST_RATE = 0.1  # the rate at the end, as a share of the highest
CLIP = 1.0  # maximum norm of the gradient
SMOOTHING = 0.98  # of the shown loss
CHECKPOINT_S, REPORT_S = 120.0, 10.0
Report = Callable[[str], None]
Clock = Callable[[], float]


def train(drafter: TrainedDrafter, batches: Batches, settings: TrainSettings, folder: Path, *, report: Report,
          clock: Clock = time.monotonic) -> TrainState:
    """Trains until the steps or the minutes are used up, from the latest checkpoint in `folder`. Returns the state.

    The weights depend on the settings and the answers only, wherever the run was interrupted, if `minutes` is not set.
    Hazard: an interrupt may hit the optimizer between two parameters, so only this loop saves, between two steps.
    """
    names = sorted(drafter.parameters)
    optimizer = torch.optim.AdamW([drafter.parameters[name] for name in names], betas=(0.9, 0.95), weight_decay=0.0)
    state = checkpoint.load(folder, drafter.parameters, optimizer)
    saved = shown = now = clock()
    before = now - state.seconds
    while (done := progress(state, settings)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * factor(state.step, done)
        _step(drafter, batches, optimizer, settings, state)
        now = clock()
        state.seconds = now - before
        if now - saved >= CHECKPOINT_S:
            checkpoint.save(folder, state, drafter.parameters, optimizer)
            saved = now
        if now - shown >= REPORT_S:
            report(line(state, settings))
            shown = now
    if state.step:
        checkpoint.save(folder, state, drafter.parameters, optimizer)
    return state


def _step(drafter: TrainedDrafter, batches: Batches, optimizer: torch.optim.AdamW, settings: TrainSettings,
          state: TrainState) -> None:
    """Takes one step and counts it."""
    found = drafter.loss(batches[state.step], np.random.default_rng([settings.seed, 1, state.step]))
    optimizer.zero_grad(set_to_none=True)
    found.loss.backward()
    torch.nn.utils.clip_grad_norm_(list(drafter.parameters.values()), CLIP)
    optimizer.step()
    share = min(1 - 1 / (state.step + 1), SMOOTHING)
    state.loss = share * state.loss + (1 - share) * found.loss.item()
    state.overlap = share * state.overlap + (1 - share) * found.overlap
    state.step += 1


def progress(state: TrainState, settings: TrainSettings) -> float:
    """Returns the used share of the steps or of the minutes, whichever is larger."""
    by_step = state.step / settings.steps if settings.steps else 0.0
    by_time = state.seconds / (60 * settings.minutes) if settings.minutes else 0.0
    return max(by_step, by_time)


def factor(step: int, done: float) -> float:
    """Returns the learning rate of a step as a share of the highest; `done` is the progress, 0 to 1."""
    cosine = LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * done)) / 2
    return min(1.0, (step + 1) / WARM_UP) * cosine


def line(state: TrainState, settings: TrainSettings) -> str:
    """Returns the line that reports a state, with the estimated time to the end."""
    left = state.seconds * (1 / max(progress(state, settings), 1e-9) - 1)
    return (f"step {state.step}{f' of {settings.steps}' if settings.steps and not settings.minutes else ''}, "
            f"loss {state.loss:.3f}, overlap {state.overlap:.3f}, {left / 60:.1f} minutes left")
