"""The trace of one request: its waits and its work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestTrace:
    """Times and causes of one request (docs/metrics.md)."""

    queued_s: float = 0.0  # from arrival to first admission, or to its end in the queue
    waited_for: str = ""  # the last reason why it was not admitted
    steps: int = 0  # steps that computed rows of it
    preemptions: int = 0
    cached_tokens: int = 0  # prompt tokens found in the prefix cache at first admission
    drafted: int = 0  # drafts that were verified
    accepted: int = 0  # of those
