"""All settings of a comparison; flags and the fields of a TOML file are derived from them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from drut.errors import RequestError

Share = Annotated[float, Meta(ge=0, le=1)]
Threads = Annotated[int, Meta(ge=1, le=4096)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]


class CompareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings. Each description is the help text of its flag."""

    engines: Annotated[list[str], Meta(min_length=1, description="engines to compare:  NAME,NAME or 'LABEL=ENGINE "
        "[gguf=FILE ...] [--flag ...]'; the same engine may occur several times with different labels")]
    cells: Annotated[list[str], Meta(min_length=1, description="the work:  WORKLOAD[:OPTIONS]@USERS or "
        "WORKLOAD[:OPTIONS]@rate=R; chat, shared-prefix and long-prompt alone have fixed sizes (docs/compare.md)")]
    base: Annotated[str | None, Meta(description="the engine that ratios compare with (default: the first)")] = None

    model: Annotated[str | None, Meta(description="known model, GGUF file or Hugging Face folder")] = None
    model_files: Annotated[str | None, Meta(description="the model in all its layouts, as a JSON file")] = None
    gguf: Annotated[str | None, Meta(description="its GGUF file")] = None
    hf: Annotated[str | None, Meta(description="its Hugging Face folder")] = None
    openvino: Annotated[str | None, Meta(description="its OpenVINO folder")] = None
    mlx: Annotated[str | None, Meta(description="its MLX folder")] = None
    tokenizer: Annotated[str | None, Meta(description="its tokenizer (default: the first of these)")] = None

    threads: Annotated[Threads | None, Meta(description="of each engine (default: the CPUs that this "
        "process may use)")] = None
    context: Annotated[int, Meta(ge=16, le=1 << 24, description="maximum tokens of a prompt and its response")] = 2048
    sequences: Annotated[int, Meta(ge=1, le=1 << 16, description="maximum of requests that an engine runs at "
        "a time")] = 16

    rounds: Annotated[int, Meta(ge=1, le=1000, description="rounds; in each, every engine takes a turn at "
        "every cell")] = 5
    warmup: Annotated[Seconds, Meta(description="seconds of the load before each turn's measured window")] = 3.0
    duration: Annotated[float, Meta(ge=0.1, le=1e6, description="seconds of a turn that are measured")] = 10.0
    grace: Annotated[Seconds, Meta(description="maximum of seconds to wait for measured requests")] = 30.0
    timeout: Annotated[float, Meta(ge=0.1, le=1e6, description="maximum seconds of a request")] = 120.0
    api: Annotated[Literal["chat", "completions"], Meta(description="endpoint of requests")] = "chat"
    seed: Annotated[int, Meta(ge=0, lt=1 << 20, description="of requests and schedules")] = 0
    slo: Annotated[str | None, Meta(description="limits for goodput: ttft=500,tpot=50,e2e=10s")] = None
    price: Annotated[str | None, Meta(description="of the machine: 1.20/h@2026-11-01 SOURCE, or a .json file")] = None
    max_error_rate: Annotated[Share, Meta(description="share of failed requests past which a turn is void")] = 0.01
    restart: Annotated[bool, Meta(description="end an engine after its turns and start it again for the next, "
        "instead of suspending it: takes longer, but the memory of only one engine")] = False

    gate: Annotated[Literal["full", "lengths"], Meta(description="tests that an engine must pass before its speed "
        "counts; lengths: only the number of tokens, for random weights")] = "full"
    reference: Annotated[str | None, Meta(description="greedy answers to agree with, a reference.json of another "
        "comparison (default: the base's)")] = None
    gate_prompts: Annotated[int, Meta(ge=1, le=80, description="greedy answers that are compared")] = 8
    gate_tokens: Annotated[int, Meta(ge=1, le=4096, description="tokens of each of them")] = 48
    gate_agreement: Annotated[Share, Meta(description="minimum share of tokens before the first difference")] = 0.1
    gate_texts: Annotated[int, Meta(ge=1, le=50, description="texts to score, if the engine supports it")] = 8
    gate_perplexity: Annotated[float, Meta(ge=0, le=1e6, description="maximum increase of the perplexity of these "
        "texts over the reference's, as a share")] = 0.5
    gate_divergence: Annotated[float, Meta(ge=0, le=1e6, description="maximum divergence of the next token from the "
        "reference's, in nats")] = 0.5
    gate_sums: Annotated[int, Meta(ge=0, le=58, description="questions of GSM8K")] = 16
    gate_sum_tokens: Annotated[int, Meta(ge=1, le=4096, description="maximum tokens of an answer to them")] = 256
    gate_sums_lost: Annotated[Share, Meta(description="share of them by which it may be worse than the "
        "base, beyond chance")] = 0.1
    gate_valid: Annotated[Share, Meta(description="minimum share of structured answers that match their schema")] = 1.0
    gate_exact: Annotated[Share, Meta(description="minimum share of answers with exactly the requested tokens")] = 1.0


def settings(given: Mapping[str, Any], config: Path | None = None) -> CompareSettings:
    """Returns the settings: `given` values, else those of a TOML file, else the defaults. Raises RequestError, which
    names the fault."""
    values: dict[str, Any] = {}
    if config is not None:
        try:
            values = tomllib.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RequestError(f"--config: {config}: {error}") from None
    try:
        return msgspec.convert({**values, **given}, CompareSettings)
    except msgspec.ValidationError as error:
        raise RequestError(f"settings: {str(error).replace('`$.', '`')}") from None
