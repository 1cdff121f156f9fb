"""The script of a scripted server: a small file of JSON or TOML, with strict checks. docs/mock.md explains each
field."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from drut.errors import RequestError

DAY_MS = 86_400_000.0
MAX_TOKENS = 1_000_000

Ms = Annotated[float, Meta(ge=0, le=DAY_MS)]
Count = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
Positive = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a script; unknown fields are errors."""


class Constant(Strict, frozen=True, tag_field="kind", tag="constant"):
    """A constant time."""

    ms: Ms


class Uniform(Strict, frozen=True, tag_field="kind", tag="uniform"):
    """A uniform distribution between two times."""

    low_ms: Ms
    high_ms: Ms

    def __post_init__(self) -> None:
        if self.low_ms > self.high_ms:
            raise ValueError("low_ms must be at most high_ms")


class Lognormal(Strict, frozen=True, tag_field="kind", tag="lognormal"):
    """exp(ln(median) + sigma * N(0, 1))."""

    median_ms: Ms
    sigma: Annotated[float, Meta(ge=0, le=4)]


class Cycle(Strict, frozen=True, tag_field="kind", tag="cycle"):
    """The times of a list, repeated."""

    ms: Annotated[list[Ms], Meta(min_length=1)]


class ByPrompt(Strict, frozen=True, tag_field="kind", tag="by_prompt"):
    """A time that grows with the prompt tokens that are not cached."""

    base_ms: Ms
    per_token_ms: Ms


Time = Constant | Uniform | Lognormal | Cycle | ByPrompt


class Stall(Strict, frozen=True):
    """A pause between two tokens; it delays all later ones equally."""

    after_tokens: Positive
    ms: Ms
    every: Positive = 1


class Fault(Strict, frozen=True):
    """A fault in every n-th request or at random."""

    kind: Literal["status", "event", "cut"]
    every: Positive | None = None
    probability: Share | None = None
    status: Annotated[int, Meta(ge=400, le=599)] = 500
    after_tokens: Count = 0

    def __post_init__(self) -> None:
        if (self.every is None) == (self.probability is None):
            raise ValueError("a fault needs exactly one of every and probability")
        if self.kind == "status" and self.after_tokens:
            raise ValueError("a fault of kind status must come before all tokens")


class ScriptStart(Strict, frozen=True):
    """The slowness of the server after its start."""

    connect_ms: Ms = 0.0
    requests: Count = 0
    extra_ms: Ms = 0.0


class Stream(Strict, frozen=True):
    """The format of a streamed response."""

    bundle: Positive = 1
    role_chunk: bool = True
    empty_every: Positive | None = None
    reasoning_tokens: Count = 0
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    tool_call: bool = False
    finish_apart: bool = False
    continuous_usage: bool = False
    done: bool = True
    done_delay_ms: Ms = 0.0
    comment_every_ms: Annotated[float, Meta(ge=1, le=DAY_MS)] | None = None
    crlf: bool = False
    events_per_write: Positive = 1
    split_bytes: Positive | None = None
    split_gap_ms: Ms = 0.0


class Script(Strict, frozen=True):
    """The complete script of a server."""

    model: str = "mock"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    ttft: Time = Constant(0.0)
    itl: Time = Constant(0.0)
    slots: Positive | None = None
    output_tokens: Positive | Annotated[list[Positive], Meta(min_length=1)] | None = None
    cached_share: Share | None = None
    usage: Literal["asked", "always", "not_streamed", "never"] = "asked"
    start: ScriptStart = ScriptStart()
    stalls: list[Stall] = []
    faults: list[Fault] = []
    stream: Stream = Stream()


def parse_script(data: object, source: str = "script") -> Script:
    """Parses a script from plain data. Raises RequestError with `source` and the field."""
    try:
        return msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        raise RequestError(f"{source}: {error}") from None


def load_script(path: str | Path) -> Script:
    """Reads a script from a .toml file or a JSON file. Raises RequestError with the file name."""
    path = Path(path)
    try:
        text = path.read_text()
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise RequestError(f"{path}: {error}") from None
    return parse_script(data, str(path))
