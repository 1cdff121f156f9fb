"""Draws the due times of a response's tokens from the script."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from drut.bench.mock.script import ByPrompt, Constant, Cycle, Lognormal, Script, Time, Uniform

Floats = npt.NDArray[np.float64]
Chance = Callable[[], np.random.Generator]


def chance(seed: int, request: int) -> Chance:
    """Returns the random numbers of one request, created on the first call; the same for the same seed and request."""
    made: list[np.random.Generator] = []

    def generator() -> np.random.Generator:
        if not made:
            made.append(np.random.default_rng([seed, request]))
        return made[0]

    return generator


def draw(time: Time, first: int, count: int, prompt_tokens: int, random: Chance) -> Floats:
    """Returns `count` draws in seconds. `first` is the position of the first one in a cycle."""
    match time:
        case Constant():
            values = np.full(count, time.ms)
        case Uniform():
            values = random().uniform(time.low_ms, time.high_ms, count)
        case Lognormal():
            values = time.median_ms * np.exp(time.sigma * random().standard_normal(count))
        case Cycle():
            values = np.resize(np.roll(time.ms, -(first % len(time.ms))), count)
        case ByPrompt():
            values = np.full(count, time.base_ms + time.per_token_ms * prompt_tokens)
    return values / 1e3


def token_times(script: Script, request: int, tokens: int, uncached: int, random: Chance) -> list[float]:
    """Returns the seconds from the start of service to each of `tokens` tokens of a request, numbered from 0.

    `uncached` is the number of prompt tokens that are not cached.
    """
    gaps = np.empty(tokens)
    gaps[:1] = draw(script.ttft, request, 1, uncached, random)
    gaps[1:] = draw(script.itl, 0, tokens - 1, uncached, random)
    if request < script.start.requests:
        gaps[0] += script.start.extra_ms / 1e3
    for stall in script.stalls:
        if stall.after_tokens < tokens and (request + 1) % stall.every == 0:
            gaps[stall.after_tokens] += stall.ms / 1e3
    times: list[float] = np.cumsum(gaps).tolist()
    return times
