"""What a scripted server does: a small file of JSON or TOML, checked strictly. docs/mock.md explains each field."""

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
    """A part of a script: unknown fields are refused."""


class Constant(Strict, frozen=True, tag_field="kind", tag="constant"):
    """The same time always."""

    ms: Ms


class Uniform(Strict, frozen=True, tag_field="kind", tag="uniform"):
    """Any time between two, evenly."""

    low_ms: Ms
    high_ms: Ms

    def __post_init__(self) -> None:
        if self.low_ms > self.high_ms:
            raise ValueError("low_ms must not be above high_ms")


class Lognormal(Strict, frozen=True, tag_field="kind", tag="lognormal"):
    """exp(ln(median) + sigma * N(0, 1))."""

    median_ms: Ms
    sigma: Annotated[float, Meta(ge=0, le=4)]


class Cycle(Strict, frozen=True, tag_field="kind", tag="cycle"):
    """The times of a list, over and over."""

    ms: Annotated[list[Ms], Meta(min_length=1)]


class ByPrompt(Strict, frozen=True, tag_field="kind", tag="by_prompt"):
    """Grows with the prompt tokens that no cache holds."""

    base_ms: Ms
    per_token_ms: Ms


Time = Constant | Uniform | Lognormal | Cycle | ByPrompt


class Stall(Strict, frozen=True):
    """A stop between two tokens; all later ones come later by as much."""

    after_tokens: Positive
    ms: Ms
    every: Positive = 1


class Fault(Strict, frozen=True):
    """What goes wrong, in every n-th request or by chance."""

    kind: Literal["status", "event", "cut"]
    every: Positive | None = None
    probability: Share | None = None
    status: Annotated[int, Meta(ge=400, le=599)] = 500
    after_tokens: Count = 0

    def __post_init__(self) -> None:
        if (self.every is None) == (self.probability is None):
            raise ValueError("a fault needs one of every and probability")
        if self.kind == "status" and self.after_tokens:
            raise ValueError("a fault of kind status comes before all tokens")


class Start(Strict, frozen=True):
    """How slow the server is at first."""

    connect_ms: Ms = 0.0
    requests: Count = 0
    extra_ms: Ms = 0.0


class Stream(Strict, frozen=True):
    """The form of a streamed answer."""

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
    """All of a scripted server."""

    model: str = "mock"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    ttft: Time = Constant(0.0)
    itl: Time = Constant(0.0)
    slots: Positive | None = None
    output_tokens: Positive | Annotated[list[Positive], Meta(min_length=1)] | None = None
    cached_share: Share | None = None
    usage: Literal["asked", "always", "not_streamed", "never"] = "asked"
    start: Start = Start()
    stalls: list[Stall] = []
    faults: list[Fault] = []
    stream: Stream = Stream()


def parse_script(data: object, source: str = "script") -> Script:
    """A script from plain data. Raises RequestError naming `source` and the field."""
    try:
        return msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        raise RequestError(f"{source}: {error}") from None


def load_script(path: str | Path) -> Script:
    """Read a script from a .toml file or one of JSON. Raises RequestError naming the file."""
    path = Path(path)
    try:
        text = path.read_text()
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise RequestError(f"{path}: {error}") from None
    return parse_script(data, str(path))
