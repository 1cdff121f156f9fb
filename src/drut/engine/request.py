"""One sequence being answered: its tokens, how many of them the cache holds, and why it took the time it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drut.cache.cache import BlockTable
from drut.constrain.guide import Guide
from drut.constrain.thought import ThoughtWatch
from drut.engine.edits import EditTable
from drut.engine.params import SamplingParams
from drut.errors import DrutError
from drut.kernels.descriptor import RELAY
from drut.kernels.kv import PAGE_TOKENS


@dataclass
class Why:
    """Where a request's time went."""

    admitted_at: float | None = None
    waited_for: str = ""  # the last reason it was not admitted
    waits_on: str = "turn"  # the same in a word; "turn" where it was not tried, since others are ahead
    steps: int = 0  # steps that computed rows of it
    preemptions: int = 0


@dataclass(eq=False)
class Request:
    """`computed` chases `known`: prompt chunks, decoding, prefix hits and resumption are all that same difference.

    `done` <= `computed` <= `known`. What steps in flight will have computed is in `computed` already; `done` is what
    finished steps have. `inflight` counts the tokens that are on their way and not in `tokens` yet: sampled
    ones, and among them those that are known already, since a grammar forces them (`promised`).
    """

    id: str
    prompt_tokens: int
    tokens: list[int]  # prompt, then what was sampled
    params: SamplingParams
    seed: int
    choice: int
    limit: int  # most tokens in all, from max_tokens and the room
    arrived: float  # seconds, monotonic
    order: int  # of arrival
    edits: EditTable
    ends: frozenset[int] = frozenset()  # ids that end the answer
    priority: int = 0  # smaller goes first
    first_choice: Request | None = None  # computes the prompt this one waits to share
    table: BlockTable = field(default_factory=BlockTable)
    thought: ThoughtWatch | None = None  # with the tokens that the host has seen
    guide: Guide | None = None  # through its constraint, with the tokens that steps have drawn
    computed: int = 0
    done: int = 0
    inflight: int = 0
    promised: dict[int, int] = field(default_factory=dict)  # by their number in the answer
    epoch: int = 0  # raised by preemption: results of steps launched before it do not count
    slot: int = -1  # of the relay, while running
    waits_since: float = 0.0  # seconds, monotonic: when it came or was preempted last
    admitted_with: int = 0  # tokens of its answer when it was admitted last
    cached_tokens: int | None = None  # of the prompt, found at first admission
    prompt_scored: int = 0  # prompt positions whose logprob is known
    first_token_at: float | None = None
    finished_at: float | None = None
    finish_reason: str | None = None
    failure: DrutError | None = None  # what ended it in "error", where that is not the model
    why: Why = field(default_factory=Why)

    def __post_init__(self) -> None:
        self.waits_since = self.arrived

    @property
    def known(self) -> int:
        return len(self.tokens) + self.inflight

    @property
    def pending(self) -> int:
        """Tokens whose rows are still to be computed; 0 where the answer's last token is already on its way."""
        over = self.known >= self.limit or (self.guide is not None and self.guide.ended_by(self.outputs))
        return 0 if over else self.known - self.computed

    @property
    def decoding(self) -> bool:
        return self.computed >= self.prompt_tokens

    @property
    def streaming(self) -> bool:
        """Its next row says a token: not while a prompt, or after a preemption its own answer, is computed again."""
        return self.decoding and self.pending == 1 and not (self.inflight and self.needs_last_token)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_tokens :]

    @property
    def scores_prompt(self) -> bool:
        return self.params.prompt_logprobs is not None and self.choice == 0

    @property
    def needs_last_token(self) -> bool:
        """Whether the host must know the last token before the next one can be drawn."""
        return self.edits.follows_output or (self.thought is not None and self.outputs >= self.thought.free_until)

    @property
    def outputs(self) -> int:
        """Tokens sampled, those on their way among them."""
        return self.known - self.prompt_tokens

    @property
    def forced(self) -> int | None:
        """The id that the next token must be; None where it is drawn."""
        return self.thought.forced(self.outputs) if self.thought is not None else None

    def promise(self, run: Sequence[int]) -> None:
        """After those on their way come these, and nobody need wait for them."""
        self.promised.update(enumerate(run, self.outputs))
        self.inflight += len(run)

    def next_promised(self) -> int | None:
        """Takes the next token, if it was promised."""
        return self.promised.pop(len(self.tokens) - self.prompt_tokens, None) if self.promised else None

    def next_tokens(self, start: int, count: int) -> list[int]:
        """Tokens from position `start` on; RELAY for one that is on its way, unless it is known."""
        tokens = self.tokens[start : start + count]
        for position in range(start + len(tokens), start + count):
            known = self._known_ahead(position - self.prompt_tokens)
            tokens.append(RELAY if known is None else known)
        return tokens

    def _known_ahead(self, output: int) -> int | None:
        known = self.promised.get(output)
        return self.thought.forced(output) if known is None and self.thought is not None else known

    @property
    def steps_alone(self) -> int:
        """Decoding steps that need nothing of the host in between: up to its limit or to where its edits change."""
        if self.needs_last_token or self.forced is not None:
            return 1
        outputs, held = self.outputs, self.params.min_tokens
        free = self.limit if self.thought is None else int(min(self.thought.free_until - outputs, self.limit))
        return min(self.limit - self.known, held - outputs if outputs < held else self.limit, free)

    @property
    def may_share(self) -> bool:
        """Whether another choice can start from what this one computed of their prompt."""
        return self.finish_reason is not None or self.done >= self.prompt_tokens - self.prompt_tokens % PAGE_TOKENS
