"""A request as the engine sees it: one sequence, with its progress, sampling state and pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drut.cache.cache import BlockTable
from drut.constrain.grammar_matcher import GrammarMatcher
from drut.constrain.reasoning import ReasoningTracker
from drut.engine.request.logits_processors import LogitsProcessors
from drut.engine.request.params import FilledParams
from drut.engine.request.progress import Progress
from drut.errors import DrutError
from drut.kernels.descriptor import RELAY
from drut.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from drut.engine.request.blocker import Blocker


@dataclass
class Why:
    """Records where the time of a request went, for its trace."""

    admitted_at: float | None = None
    waited_for: str = ""  # reason of the last refused admission
    waits_on: str = "turn"  # the same as one of WAITS; "turn" if it was not tried, since others are ahead in the queue
    steps: int = 0  # number of steps that computed rows of this request
    preemptions: int = 0
    drafted: int = 0  # number of drafts that were verified
    accepted: int = 0  # of those


@dataclass(eq=False, kw_only=True)
class Request:
    """One sequence: its parameters, its `progress`, and the state that its next token depends on.

    Written by the engine's thread only.
    """

    id: str
    progress: Progress
    params: FilledParams
    seed: int = 0
    choice: int = 0
    limit: int  # maximum of prompt and output tokens, from max_tokens and the context
    arrived: float  # seconds, monotonic
    order: int  # number of the arrival
    edits: LogitsProcessors  # logits processors
    ends: frozenset[int] = frozenset()  # ids that end the output: EOS and stop ids
    priority: int = 0  # the smallest is first
    first_choice: Request | None = None  # the choice that computes the prompt which this one shares
    table: BlockTable = field(default_factory=BlockTable)
    reasoning: ReasoningTracker | None = None  # reasoning state after the tokens that the host has
    guide: GrammarMatcher | None = None  # grammar matcher, after the tokens that steps have drawn
    blockers: list[Blocker] = field(default_factory=list)  # must be resolved before it is scheduled
    logits: bool = False  # return the logits of every prompt row
    speculates: bool = False  # a drafter may propose its next tokens
    drafting: bool = False  # it waits for its last token, so that drafts may follow it
    chunk: int | None = None  # maximum prompt rows per step, if lower than for other requests
    slot: int = -1  # relay slot while running, else -1
    waits_since: float = 0.0  # seconds, monotonic: arrival or last preemption
    admitted_with: int = 0  # output tokens at the last admission
    cached_tokens: int | None = None  # prompt tokens that the prefix cache lookup of the first admission found
    first_token_at: float | None = None
    finished_at: float | None = None
    finish_reason: str | None = None
    failure: DrutError | None = None  # cause of the finish reason "error", if known
    why: Why = field(default_factory=Why)

    def __post_init__(self) -> None:
        self.waits_since = self.arrived

    @property
    def tokens(self) -> list[int]:
        """Prompt and output tokens that the host has."""
        return self.progress.tokens

    @property
    def prompt_tokens(self) -> int:
        return self.progress.prompt_tokens

    @property
    def output_ids(self) -> list[int]:
        return self.progress.output_ids

    @property
    def num_output_tokens(self) -> int:
        """The number of output tokens, tokens in flight included."""
        return self.progress.num_output_tokens

    @property
    def known(self) -> int:
        return self.progress.known

    @property
    def computed(self) -> int:
        return self.progress.computed

    @property
    def pending(self) -> int:
        """The number of rows that may be scheduled. 0 if the limit is reached by the tokens in flight, or if a
        verification
        of drafts is in flight."""
        progress = self.progress
        known = progress.known
        over = known >= self.limit or (self.guide is not None and self.guide.ended_by(self.num_output_tokens))
        return 0 if over or progress.verifying else known - progress.computed

    @property
    def decoding(self) -> bool:
        """True if the whole prompt is computed."""
        return self.computed >= self.prompt_tokens

    @property
    def streaming(self) -> bool:
        """True if its next row draws a token: not during prefill or recomputation after a preemption."""
        return self.decoding and self.pending == 1 and not self.waits_for_token

    @property
    def waits_for_token(self) -> bool:
        """True if its next token depends on a token in flight, so that it cannot be scheduled with overlap."""
        return self.progress.inflight > 0 and self.needs_last_token

    @property
    def needs_last_token(self) -> bool:
        """True if the host needs the last token before the next one can be drawn: for penalties, a reasoning budget or
        drafts."""
        waits = self.drafting or self.edits.depends_on_last_token
        return waits or (self.reasoning is not None and self.num_output_tokens >= self.reasoning.first_dependent_index)

    @property
    def scores_prompt(self) -> bool:
        """True if its prompt rows are sampled, so that none may come from the prefix cache."""
        return self.logits or (self.params.prompt_logprobs is not None and self.choice == 0)

    @property
    def may_draft(self) -> bool:
        """True if a drafter may propose its next tokens now: no token is in flight."""
        return self.drafting and self.streaming and not self.progress.inflight

    @property
    def forced(self) -> int | None:
        """The next token if the reasoning budget forces it, else None."""
        return self.reasoning.forced(self.num_output_tokens) if self.reasoning is not None else None

    def next_tokens(self, start: int, count: int) -> list[int]:
        """Returns tokens from position `start` on; RELAY for a token in flight, unless it is forced and so known."""
        tokens = self.tokens[start : start + count]
        for position in range(start + len(tokens), start + count):
            known = self._forced_at(position - self.prompt_tokens)
            tokens.append(RELAY if known is None else known)
        return tokens

    def _forced_at(self, output_index: int) -> int | None:
        """Returns the token that grammar or reasoning budget force at an output index, if there is one."""
        known = self.progress.forced_at(output_index)
        return self.reasoning.forced(output_index) if known is None and self.reasoning is not None else known

    @property
    def steps_alone(self) -> int:
        """The number of decode steps that can run without the host: up to the length limit, to `min_tokens`, where the
        logits processors change, or to where the reasoning budget needs the host."""
        if self.needs_last_token or self.forced is not None:
            return 1
        outputs, min_tokens = self.num_output_tokens, self.params.min_tokens
        reasoning = self.reasoning
        free = self.limit if reasoning is None else int(min(reasoning.first_dependent_index - outputs, self.limit))
        return min(self.limit - self.known, min_tokens - outputs if outputs < min_tokens else self.limit, free)

    @property
    def may_share(self) -> bool:
        """True if other choices can start from the prompt pages that this one computed."""
        whole = self.prompt_tokens - self.prompt_tokens % PAGE_TOKENS
        return self.finish_reason is not None or self.progress.done >= whole
