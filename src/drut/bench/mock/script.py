"""The script of a scripted server: a small file of JSON or TOML, with strict checks."""

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

    after_tokens: Annotated[Positive, Meta(description=
        "number of tokens after which the next one, and all that follow, are delayed")]
    ms: Annotated[Ms, Meta(description="the delay")]
    every: Annotated[Positive, Meta(description="in every n-th request")] = 1


class Fault(Strict, frozen=True):
    """A fault in every n-th request or at random."""

    kind: Annotated[Literal["status", "event", "cut"], Meta(description=
        "status: an HTTP status at once, without a slot. event: an error event in the stream, else "
        "status 500. cut: the connection is reset")]
    every: Annotated[Positive | None, Meta(description="in every n-th request; either this or probability")] = None
    probability: Annotated[Share | None, Meta(description="with this probability")] = None
    status: Annotated[Annotated[int, Meta(ge=400, le=599)], Meta(description="of kind status")] = 500
    after_tokens: Annotated[Count, Meta(description=
        "for event and cut: number of tokens after which the fault occurs, when the next is due")] = 0

    def __post_init__(self) -> None:
        if (self.every is None) == (self.probability is None):
            raise ValueError("a fault needs exactly one of every and probability")
        if self.kind == "status" and self.after_tokens:
            raise ValueError("a fault of kind status must come before all tokens")


class ScriptStart(Strict, frozen=True):
    """The slowness of the server after its start."""

    connect_ms: Annotated[Ms, Meta(description="time for which a new connection is not read")] = 0.0
    requests: Annotated[Count, Meta(description="number of first requests that are slow")] = 0
    extra_ms: Annotated[Ms, Meta(description="added to the TTFT of these")] = 0.0


class Stream(Strict, frozen=True):
    """The format of a streamed response."""

    bundle: Annotated[Positive, Meta(description=
        "tokens per chunk, after the first token, which comes alone; a chunk is due with its last "
        "token")] = 1
    role_chunk: Annotated[bool, Meta(description=
        "a chat stream opens with a chunk that has a role and no text, at the start of service")] = True
    empty_every: Annotated[Positive | None, Meta(description=
        "before every n-th chunk a chunk without text, halfway to it")] = None
    reasoning_tokens: Annotated[Count, Meta(description="number of first tokens of a chat that are reasoning")] = 0
    reasoning_field: Annotated[Literal["reasoning_content", "reasoning"], Meta(description=
        "the field of the reasoning; or reasoning")] = "reasoning_content"
    tool_call: Annotated[bool, Meta(description="the other tokens of a chat are arguments of a tool call")] = False
    finish_apart: Annotated[bool, Meta(description="the finish reason is in a chunk of its own")] = False
    continuous_usage: Annotated[bool, Meta(description="usage in every chunk, requested or not")] = False
    done: Annotated[bool, Meta(description="the stream ends with [DONE]")] = True
    done_delay_ms: Annotated[Ms, Meta(description=
        "delay of [DONE] after the last token; the slot is freed before")] = 0.0
    comment_every_ms: Annotated[Annotated[float, Meta(ge=1, le=DAY_MS)] | None, Meta(description=
        "interval of comment lines, until the stream ends")] = None
    crlf: Annotated[bool, Meta(description="lines end with CR LF")] = False
    events_per_write: Annotated[Positive, Meta(description=
        "events joined to one write, due with the last of them")] = 1
    split_bytes: Annotated[Positive | None, Meta(description="writes are split into parts of this many bytes")] = None
    split_gap_ms: Annotated[Ms, Meta(description=
        "time between two parts; parts due at the same time are written together. Later events wait "
        "for the parts")] = 0.0


class Script(Strict, frozen=True):
    """The complete script of a server."""

    model: Annotated[str, Meta(description="the model's name")] = "mock"
    seed: Annotated[Annotated[int, Meta(ge=0, le=2**63 - 1)], Meta(description="of all random numbers")] = 0
    ttft: Annotated[Time, Meta(description="time from the start of service to the first token")] = Constant(0.0)
    itl: Annotated[Time, Meta(description="time between two tokens")] = Constant(0.0)
    slots: Annotated[Positive | None, Meta(description=
        "maximum requests served at a time; others wait, first come, first served. null: no limit")] = None
    output_tokens: Annotated[Positive | Annotated[list[Positive], Meta(min_length=1)] | None, Meta(description=
        "number of output tokens, or a list of numbers by the request's number; at most the request's "
        "max_tokens (default 16). null, and requests with ignore_eos: exactly max_tokens")] = None
    cached_share: Annotated[Share | None, Meta(description=
        "share of the prompt's tokens reported as cached_tokens. null: not reported")] = None
    usage: Annotated[Literal["asked", "always", "not_streamed", "never"], Meta(description=
        "in streams: asked: if stream_options.include_usage is set, always, not_streamed: never in "
        "streams, never: nowhere")] = "asked"
    start: Annotated[ScriptStart, Meta(description="the server's slowness after its start")] = ScriptStart()
    stalls: Annotated[list[Stall], Meta(description="pauses between two tokens")] = []
    faults: Annotated[list[Fault], Meta(description="faults; the first that applies counts")] = []
    stream: Annotated[Stream, Meta(description="the format of streams")] = Stream()


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
