"""The course of one request: what it waited for and what the engine did for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestTrace:
    """Why a request took the time it took (docs/metrics.md)."""

    queued_s: float = 0.0  # from arrival to first admission, or to its end in the queue
    waited_for: str = ""  # the last reason it was not admitted
    steps: int = 0  # that computed rows of it
    preemptions: int = 0
    cached_tokens: int = 0  # of the prompt, found in the prefix cache at first admission
