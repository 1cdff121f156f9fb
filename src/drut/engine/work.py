"""What a step computes: rows of requests, within a budget; and the reasons a request has to wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from drut.engine.request import Request


class Work(NamedTuple):
    """Rows of one request in a step: `rows` tokens from position `start` on. The last `draws` of them are sampled: none
    of a chunk that is not the last one, one of a decoding row, 1 + len(drafts) where drafts are verified.
    """

    request: Request
    start: int
    rows: int
    draws: int
    scores: int  # leading rows whose next token's logprob is wanted
    epoch: int
    ahead: int = 0  # steps after this one that go on from it without the host, one row each; the same for all work
    drafts: tuple[int, ...] = ()  # guesses of the next tokens; they are the last rows' tokens

    @property
    def samples(self) -> int:
        return self.draws + self.scores

    @property
    def decodes(self) -> bool:
        """All rows say tokens, or verify guesses of them: what a decoding stream asks of a step."""
        return self.draws == self.rows

    @property
    def first_draw(self) -> int:
        """Output index of the first token that it draws."""
        return self.start + self.rows - max(self.draws - 1, 0) - self.request.prompt_tokens


# What a waiting request waits for, in a word.
WAITS = ("turn", "sequences", "pages", "budget", "choice", "token", "grammar")
PLACES = ("sequences", "pages")  # of those, what a running request could give it
PREEMPTIONS = ("pages", "policy", "other")  # pages ran out; another was to have its place; a fault, or a test


class Refused(NamedTuple):
    """Why a request was not admitted, in a word of WAITS and in full. `passable`: those behind it may be tried."""

    waits_on: str
    reason: str
    passable: bool = False


class Limits(NamedTuple):
    """Of one step. `chunk`: prompt tokens of a request, 0 for whole prompts, None for as many as stall no stream.
    `burst`: decoding steps in one call."""

    seqs: int
    tokens: int
    samples: int
    chunk: int | None
    burst: int = 1


@dataclass
class Budget:
    """What the step being put together has left, and what it holds. `paced`: prompts may not make it much longer."""

    tokens: int
    samples: int
    paced: bool
    work: dict[Request, Work] = field(default_factory=dict)

    def add(self, work: Work) -> None:
        self.work[work.request] = work
        self.tokens -= work.rows
        self.samples -= work.samples

    def drop(self, request: Request) -> Work | None:
        work = self.work.pop(request, None)
        if work is not None:
            self.tokens += work.rows
            self.samples += work.samples
        return work
