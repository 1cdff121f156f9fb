"""One request: its tokens, how many of them the cache holds, and what it has said so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drut.engine.params import SamplingParams


@dataclass(eq=False)
class Request:
    """`computed` chases `len(tokens)`: prompt chunks, decoding and resumption are all that same difference."""

    prompt_tokens: int
    tokens: list[int]  # prompt, then what was sampled
    params: SamplingParams
    seed: int
    limit: int  # most tokens in all, from max_tokens and the context
    arrived: float  # seconds, monotonic
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    first_token_at: float | None = None
    finished_at: float | None = None
    finish_reason: str | None = None

    @property
    def pending(self) -> int:
        """Tokens the cache does not hold yet."""
        return len(self.tokens) - self.computed

    @property
    def output(self) -> Sequence[int]:
        return self.tokens[self.prompt_tokens :]
