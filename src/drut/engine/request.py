"""One sequence being answered: its tokens, how many of them the cache holds, and why it took the time it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drut.cache.cache import BlockTable
from drut.constrain.guide import Guide
from drut.constrain.thought import ThoughtWatch
from drut.engine.edits import EditTable
from drut.engine.params import SamplingParams
from drut.engine.progress import Progress
from drut.errors import DrutError
from drut.kernels.descriptor import RELAY
from drut.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from drut.engine.blocker import Blocker


@dataclass
class Why:
    """Where a request's time went."""

    admitted_at: float | None = None
    waited_for: str = ""  # the last reason it was not admitted
    waits_on: str = "turn"  # the same in a word; "turn" where it was not tried, since others are ahead
    steps: int = 0  # steps that computed rows of it
    preemptions: int = 0


@dataclass(eq=False, kw_only=True)
class Request:
    """One sequence: what was asked, how far it has come (`progress`), and the state that its next token depends on."""

    id: str
    progress: Progress
    params: SamplingParams
    seed: int = 0
    choice: int = 0
    limit: int  # most tokens in all, from max_tokens and the room
    arrived: float  # seconds, monotonic
    order: int  # of arrival
    edits: EditTable
    ends: frozenset[int] = frozenset()  # ids that end the answer
    priority: int = 0  # smaller goes first
    first_choice: Request | None = None  # computes the prompt this one waits to share
    table: BlockTable = field(default_factory=BlockTable)
    reasoning: ThoughtWatch | None = None  # with the tokens that the host has seen
    guide: Guide | None = None  # through its constraint, with the tokens that steps have drawn
    blockers: list[Blocker] = field(default_factory=list)  # what must be ready before it is scheduled
    logits: bool = False  # the logits of every prompt row are wanted
    speculates: bool = False  # a drafter may guess its next tokens
    chunk: int | None = None  # most prompt rows of it in a step, where it asks for fewer than others get
    slot: int = -1  # of the relay, while running
    waits_since: float = 0.0  # seconds, monotonic: when it came or was preempted last
    admitted_with: int = 0  # tokens of its answer when it was admitted last
    cached_tokens: int | None = None  # of the prompt, found at first admission
    first_token_at: float | None = None
    finished_at: float | None = None
    finish_reason: str | None = None
    failure: DrutError | None = None  # what ended it in "error", where that is not the model
    why: Why = field(default_factory=Why)

    def __post_init__(self) -> None:
        self.waits_since = self.arrived

    @property
    def tokens(self) -> list[int]:
        """The prompt, then the output that the host has."""
        return self.progress.tokens

    @property
    def prompt_tokens(self) -> int:
        return self.progress.prompt_tokens

    @property
    def output(self) -> list[int]:
        return self.progress.output

    @property
    def outputs(self) -> int:
        """Output tokens, those on their way included."""
        return self.progress.num_output_tokens

    @property
    def known(self) -> int:
        return self.progress.known

    @property
    def computed(self) -> int:
        return self.progress.computed

    @property
    def pending(self) -> int:
        """Rows that may be scheduled: 0 if the last output token, or a verification, is on its way."""
        progress = self.progress
        known = progress.known
        over = known >= self.limit or (self.guide is not None and self.guide.ended_by(self.outputs))
        return 0 if over or progress.verifying else known - progress.computed

    @property
    def decoding(self) -> bool:
        return self.computed >= self.prompt_tokens

    @property
    def streaming(self) -> bool:
        """Its next row draws a token: not while a prompt, or after a preemption its own output, is computed again."""
        return self.decoding and self.pending == 1 and not self.waits_for_token

    @property
    def waits_for_token(self) -> bool:
        """Its next token depends on one that is still on its way."""
        return self.progress.inflight > 0 and self.needs_last_token

    @property
    def needs_last_token(self) -> bool:
        """Whether the host must know the last token before the next one can be drawn, or drafts be made."""
        waits = self.speculates or self.edits.follows_output
        return waits or (self.reasoning is not None and self.outputs >= self.reasoning.first_dependent_index)

    @property
    def scores_prompt(self) -> bool:
        """Rows of its prompt are sampled, so none may come from the prefix cache."""
        return self.logits or (self.params.prompt_logprobs is not None and self.choice == 0)

    @property
    def may_draft(self) -> bool:
        """Its next tokens may be guessed now: the host has all that precede them."""
        return self.speculates and self.streaming and not self.progress.inflight

    @property
    def forced(self) -> int | None:
        """The id that the next token must be; None where it is drawn."""
        return self.reasoning.forced(self.outputs) if self.reasoning is not None else None

    def next_tokens(self, start: int, count: int) -> list[int]:
        """Tokens from position `start` on; RELAY for one that is on its way, unless it is known."""
        tokens = self.tokens[start : start + count]
        for position in range(start + len(tokens), start + count):
            known = self._known_ahead(position - self.prompt_tokens)
            tokens.append(RELAY if known is None else known)
        return tokens

    def _known_ahead(self, output: int) -> int | None:
        known = self.progress.forced_at(output)
        return self.reasoning.forced(output) if known is None and self.reasoning is not None else known

    @property
    def steps_alone(self) -> int:
        """Decoding steps that need nothing of the host in between: up to its limit or to where its edits change."""
        if self.needs_last_token or self.forced is not None:
            return 1
        outputs, held = self.outputs, self.params.min_tokens
        reasoning = self.reasoning
        free = self.limit if reasoning is None else int(min(reasoning.first_dependent_index - outputs, self.limit))
        return min(self.limit - self.known, held - outputs if outputs < held else self.limit, free)

    @property
    def may_share(self) -> bool:
        """Whether another choice can start from what this one computed of their prompt."""
        whole = self.prompt_tokens - self.prompt_tokens % PAGE_TOKENS
        return self.finish_reason is not None or self.progress.done >= whole
