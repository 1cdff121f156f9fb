"""The messages between clients and the engine loop. They are typed, so that the engine can be a thread or a process.

Between processes they are msgpack frames with a length first; nothing is pickled.
"""

from __future__ import annotations

import msgspec

from drut.constrain.constraint import Constraint
from drut.engine.request.output import Chunk
from drut.engine.request.params import NEUTRAL, SamplingParams
from drut.observe.ledger import Macs


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Submits a request; the prompt is text or token ids."""

    id: str
    prompt: str | list[int]
    params: SamplingParams
    priority: int = 0
    salt: str = ""
    lean: bool = False  # completions do not repeat what chunks had: they come without text, ids and logprobs


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Aborts a request in any state. Idempotent; an unknown id is ignored."""

    id: str


class Compile(msgspec.Struct, frozen=True, tag="compile"):
    """Compiles a constraint before the requests that need it. The engine loop is not involved, so it waits for no
    step."""

    id: str
    constraint: Constraint


class Inspect(msgspec.Struct, frozen=True, tag="inspect"):
    """Requests Stats."""


class SetRoof(msgspec.Struct, frozen=True, tag="roof"):
    """Sets the roof of this machine for the engine's threads, per second. From then on Stats have roofline times."""

    read: dict[int, float]  # bytes, by the bytes of the working set
    macs: Macs


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Stops the engine. Open requests are aborted."""


class EngineReady(msgspec.Struct, frozen=True, tag="ready"):
    """Reports that the model is loaded. `parts`: seconds of the load by phase, in order; they add up to `load_s`."""

    load_s: float
    numerics_id: str
    description: str
    room: int  # maximum tokens of a prompt and its output together
    max_seqs: int  # maximum number of running sequences
    step_tokens: int  # token budget of a step
    parts: dict[str, float]
    sampling: SamplingParams = NEUTRAL  # the defaults of its publisher
    weights: str = ""  # their number and encoding
    kv_tokens: int = 0  # capacity of the KV cache
    kv_bytes: int = 0


class Output(msgspec.Struct, frozen=True, tag="output"):
    """A chunk of one choice of a request; `last` if no other chunk of the request follows."""

    id: str
    chunk: Chunk
    last: bool


class Compiled(msgspec.Struct, frozen=True, tag="compiled"):
    """Reports that a constraint was compiled and is cached. For an invalid constraint Failed is sent instead."""

    id: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Reports the error of a request or a compilation; with an empty id, of the engine itself. `invalid`: the cause is
    in the request."""

    id: str
    message: str
    invalid: bool


class PageStats(msgspec.Struct, frozen=True):
    """The pages of one KV group. Free, own and cached pages add up to the total."""

    total: int
    free: int
    cached: int
    evictable: int

    @property
    def held(self) -> int:
        """The number of pages that requests use."""
        return self.total - self.free - self.evictable

    @property
    def by_state(self) -> dict[str, int]:
        return {"free": self.free, "cached": self.cached, "own": self.total - self.free - self.cached}


class DraftStats(msgspec.Struct, frozen=True):
    """The verifications of a drafting method."""

    verifications: int
    drafted: int
    accepted: list[int]  # accepted drafts by position


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """The counts of an engine, since its start unless noted otherwise. Pages are of the first KV group, which has the
    widest window."""

    pages: int
    free_pages: int
    cached_pages: int  # in the prefix tree, used or not
    evictable_pages: int  # of those, held by no request
    running: int
    waiting: dict[str, int]  # sequences in the queue now, by reason (drut.engine.schedule.work.WAITS)
    preemptions: dict[str, int]  # by reason (drut.engine.schedule.work.PREEMPTIONS)
    expected_tokens: int  # output tokens that running sequences will still add, as estimated
    queried_tokens: int  # prompt tokens of prefix cache lookups
    hit_tokens: int  # found in the prefix cache
    evicted_miss_tokens: int  # not found because they were evicted
    evicted_pages: int
    steps: int
    rows: int  # tokens computed
    failed_steps: int
    idle_s: float  # since a step last ended, or the start
    step_bounds: list[float]  # upper bounds of the buckets, seconds
    step_counts: list[int]  # steps in each bucket; the last is for steps above all bounds
    step_seconds: float  # of all steps together
    floor_seconds: float | None = None  # roofline time of the steps since the roof is known
    window_pages: list[PageStats] = []  # of the other KV groups
    expert_tokens: dict[int, tuple[int, int]] = {}  # by layer: rows of all experts, and of the busiest expert
    row_bounds: list[float] = []  # upper bounds of the buckets by a step's tokens
    row_counts: list[int] = []  # steps in each bucket; the last is for steps above all bounds
    compiled_grammars: int = 0
    drafts: dict[str, DraftStats] = {}  # by method


ToLoop = Submit | Abort | Inspect | SetRoof | Stop
ToEngine = ToLoop | Compile
FromEngine = EngineReady | Output | Compiled | Failed | Stats
