"""What crosses the boundary between those who ask and the engine; typed, so that it can be a thread or a process.

In a process the frames are msgpack with this schema, length first; nothing is pickled.
"""

from __future__ import annotations

import msgspec

from drut.constrain.constraint import Constraint
from drut.engine.output import Chunk
from drut.engine.params import SamplingParams


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """A prompt as token ids or text."""

    id: str
    prompt: str | list[int]
    params: SamplingParams
    priority: int = 0
    salt: str = ""
    lean: bool = False  # what was said is not said again: completions come without text, ids and logprobs


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Ends a request wherever it is. Idempotent; an unknown id is ignored."""

    id: str


class Compile(msgspec.Struct, frozen=True, tag="compile"):
    """Asks for a constraint to be compiled ahead of the requests that need it. It waits for no step."""

    id: str
    constraint: Constraint


class Inspect(msgspec.Struct, frozen=True, tag="inspect"):
    """Asks for Stats."""


class Roof(msgspec.Struct, frozen=True, tag="roof"):
    """What this machine does at most with the engine's threads, a second: each step's floor is told from then on."""

    read: dict[int, float]  # bytes, by the bytes of the working set
    int8_macs: float
    float_macs: float


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Ends the engine. Open requests are aborted."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded. `parts`: seconds of the load by what they went into, in order; they add up to `load_s`."""

    load_s: float
    numerics_id: str
    description: str
    room: int  # tokens that a prompt and its answer may have together
    max_seqs: int  # sequences computed at a time
    step_tokens: int  # most tokens of one step
    parts: dict[str, float]


class Output(msgspec.Struct, frozen=True, tag="output"):
    """A piece of one choice of a request; `last` where the request has nothing more to say."""

    id: str
    chunk: Chunk
    last: bool


class Compiled(msgspec.Struct, frozen=True, tag="compiled"):
    """A constraint has been compiled, and is kept for a while. One that is no good has failed instead."""

    id: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A request or a compilation ended in an error; with an empty id the engine itself did. `invalid`: what was asked
    was at fault."""

    id: str
    message: str
    invalid: bool


class Pages(msgspec.Struct, frozen=True):
    """Of one KV group. Free, owned and cached pages are all."""

    total: int
    free: int
    cached: int
    evictable: int

    @property
    def held(self) -> int:
        """Those that requests use."""
        return self.total - self.free - self.evictable

    @property
    def by_state(self) -> dict[str, int]:
        return {"free": self.free, "cached": self.cached, "own": self.total - self.free - self.cached}


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """What an engine counts, since its start where nothing else is said. Pages are of the first KV group, which keeps
    most; free, owned and cached ones are all."""

    pages: int
    free_pages: int
    cached_pages: int  # in the prefix tree, used or not
    evictable_pages: int  # of those, held by no request
    running: int
    waiting: dict[str, int]  # sequences not running now, by why (drut.engine.work.WAITS)
    preemptions: dict[str, int]  # by why (drut.engine.work.PREEMPTIONS)
    expected_tokens: int  # that running sequences are expected to say yet
    queried_tokens: int  # of prompts, looked up in the prefix cache
    hit_tokens: int  # found
    evicted_miss_tokens: int  # not found, though they were there once
    evicted_pages: int
    steps: int
    rows: int  # tokens computed
    failed_steps: int
    idle_s: float  # since a step last ended, or the start
    step_bounds: list[float]  # upper bounds of the buckets, seconds
    step_counts: list[int]  # steps in each bucket; one more for those above all bounds
    step_seconds: float  # of all steps together
    floor_seconds: float | None = None  # of the steps since the roof is known
    window_pages: list[Pages] = []  # of the other groups, those with a window
    expert_tokens: dict[int, tuple[int, int]] = {}  # by layer with experts: rows of all of them, and of the busiest
    row_bounds: list[float] = []  # upper bounds of the buckets by a step's tokens
    row_counts: list[int] = []  # steps in each of them, and those above
    compiled_grammars: int = 0


ToLoop = Submit | Abort | Inspect | Roof | Stop
ToEngine = ToLoop | Compile
FromEngine = Ready | Output | Compiled | Failed | Stats
