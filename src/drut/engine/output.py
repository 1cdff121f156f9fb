"""What comes out: a finished completion, and the pieces of one that is streaming."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Completion:
    """One answer. `timings` in seconds and tokens per second."""

    text: str
    token_ids: list[int]
    finish_reason: str  # "stop", "length" or "abort"
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seed: int
    timings: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Chunk:
    """New text and ids of a streaming answer; `completion` is set on the last one."""

    text: str
    token_ids: list[int]
    completion: Completion | None = None
