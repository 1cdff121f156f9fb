"""What crosses the boundary between those who ask and the engine; typed, so that it can be a thread or a process.

In a process the frames are msgpack with this schema, length first; nothing is pickled.
"""

from __future__ import annotations

import msgspec

from drut.engine.output import Chunk
from drut.engine.params import SamplingParams


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """A prompt as token ids or text."""

    id: str
    prompt: str | list[int]
    params: SamplingParams
    priority: int = 0
    salt: str = ""


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Ends a request wherever it is. Idempotent; an unknown id is ignored."""

    id: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Ends the engine. Open requests are aborted."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded. `room`: tokens that a prompt and its answer may have together."""

    load_s: float
    numerics_id: str
    description: str
    room: int


class Output(msgspec.Struct, frozen=True, tag="output"):
    """A piece of one choice of a request; `last` where the request has nothing more to say."""

    id: str
    chunk: Chunk
    last: bool


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A request ended in an error; with an empty id the engine itself did. `invalid`: the request was at fault."""

    id: str
    message: str
    invalid: bool


ToEngine = Submit | Abort | Stop
FromEngine = Ready | Output | Failed
