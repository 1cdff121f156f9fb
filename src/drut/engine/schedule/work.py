"""The work of a step: rows of requests within a token budget. Also the reasons why a request waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from drut.engine.request.request import Request


class ScheduledRequest(NamedTuple):
    """The scheduled rows of one request in a step: `rows` tokens from position `start` on. The last `draws` rows are
    sampled: 0 in a prefill chunk that is not the last, 1 in a decode, 1 + len(drafts) if drafts are verified.
    """

    request: Request
    start: int
    rows: int
    draws: int
    scores: int  # leading rows that are sampled for prompt logprobs
    epoch: int  # of the request at the launch; a preemption raises it, and these rows no longer count
    ahead: int = 0  # decode steps that follow without the host, one row each; the same for all work of a step
    drafts: tuple[int, ...] = ()  # proposed next tokens: the tokens of the last rows

    @property
    def samples(self) -> int:
        return self.draws + self.scores

    @property
    def decodes(self) -> bool:
        """True if all rows are sampled: a decode or a verification of drafts, not a prefill chunk."""
        return self.draws == self.rows

    @property
    def first_draw(self) -> int:
        """Output index of the first token that this work draws."""
        return self.start + self.rows - max(self.draws - 1, 0) - self.request.prompt_tokens


# What a waiting request waits for, as a metric label: its turn in the queue, a sequence slot, KV pages, token budget,
# the first choice's prompt, its own token in flight, a grammar.
WAITS = ("turn", "sequences", "pages", "budget", "choice", "token", "grammar")
PLACES = ("sequences", "pages")  # the WAITS that a preemption of a running request can resolve
PREEMPTIONS = ("pages", "policy", "other")  # pages ran out; in favour of another request; a fault, or a test


class Refused(NamedTuple):
    """The reason of a refused admission, as one of WAITS and in full. `passable`: requests behind it may be tried."""

    waits_on: str
    reason: str
    passable: bool = False


class StepLimits(NamedTuple):
    """The maximum size of a step: sequences, rows (token budget), samples. `chunk`: maximum prompt tokens of a request,
    0 for whole prompts, None to let the pacer decide. `burst`: maximum decode steps in one launch."""

    seqs: int
    tokens: int
    samples: int
    chunk: int | None
    burst: int = 1


@dataclass
class StepBudget:
    """The rows and samples left in the step that is being scheduled, and its work so far. `paced`: the prefill pacer
    limits prompt rows, because streams decode in this step."""

    tokens: int
    samples: int
    paced: bool
    work: dict[Request, ScheduledRequest] = field(default_factory=dict)

    def add(self, work: ScheduledRequest) -> None:
        """Adds the rows of a request to the batch."""
        self.work[work.request] = work
        self.tokens -= work.rows
        self.samples -= work.samples

    def drop(self, request: Request) -> ScheduledRequest | None:
        """Removes the rows of a request from the batch, if it has some, and returns them."""
        work = self.work.pop(request, None)
        if work is not None:
            self.tokens += work.rows
            self.samples += work.samples
        return work
