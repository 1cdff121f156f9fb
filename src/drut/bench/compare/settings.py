"""All settings of a comparison, declared once: flags and the fields of a TOML file are derived from them."""

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


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A description is the help of the flag."""

    engines: Annotated[list[str], Meta(min_length=1, description="who is compared: NAME,NAME or 'LABEL=ENGINE "
        "[gguf=FILE ...] [--flag ...]'; the same engine may stand several times under other labels")]
    cells: Annotated[list[str], Meta(min_length=1, description="what is sent: WORKLOAD[:OPTIONS]@USERS or "
        "WORKLOAD[:OPTIONS]@rate=R; chat, shared-prefix and long-prompt alone have fixed sizes (docs/compare.md)")]
    base: Annotated[str | None, Meta(description="whom ratios are against (default: the first)")] = None

    model: Annotated[str | None, Meta(description="known model, GGUF file or Hugging Face folder")] = None
    model_files: Annotated[str | None, Meta(description="the model in all its layouts, as a JSON file")] = None
    gguf: Annotated[str | None, Meta(description="its GGUF file")] = None
    hf: Annotated[str | None, Meta(description="its Hugging Face folder")] = None
    openvino: Annotated[str | None, Meta(description="its OpenVINO folder")] = None
    mlx: Annotated[str | None, Meta(description="its MLX folder")] = None
    tokenizer: Annotated[str | None, Meta(description="where its tokenizer is (default: the first of these)")] = None

    threads: Annotated[Threads | None, Meta(description="of each engine (default: the CPUs that this "
        "process may use)")] = None
    context: Annotated[int, Meta(ge=16, le=1 << 24, description="tokens of a prompt and its answer, at most")] = 2048
    sequences: Annotated[int, Meta(ge=1, le=1 << 16, description="requests that an engine computes at a time, at "
        "most")] = 16

    rounds: Annotated[int, Meta(ge=1, le=1000, description="in each, every engine has a turn at every cell")] = 5
    warmup: Annotated[Seconds, Meta(description="seconds of the load before each turn's measured window")] = 3.0
    duration: Annotated[float, Meta(ge=0.1, le=1e6, description="seconds of a turn that are measured")] = 10.0
    grace: Annotated[Seconds, Meta(description="most seconds that measured requests are waited for")] = 30.0
    timeout: Annotated[float, Meta(ge=0.1, le=1e6, description="most seconds of a request")] = 120.0
    api: Annotated[Literal["chat", "completions"], Meta(description="where requests go")] = "chat"
    seed: Annotated[int, Meta(ge=0, lt=1 << 20, description="of requests and schedules")] = 0
    slo: Annotated[str | None, Meta(description="limits for goodput: ttft=500,tpot=50,e2e=10s")] = None
    price: Annotated[str | None, Meta(description="of the machine: 1.20/h@2026-11-01 SOURCE, or a .json file")] = None
    max_error_rate: Annotated[Share, Meta(description="share of failed requests past which a turn is void")] = 0.01
    restart: Annotated[bool, Meta(description="end an engine after its turns and start it again for the next, "
        "instead of holding it: takes longer, and the memory of one engine at a time")] = False

    gate: Annotated[Literal["full", "lengths"], Meta(description="what an engine must show before its speed counts; "
        "lengths: the tokens of its answers alone, for random weights")] = "full"
    reference: Annotated[str | None, Meta(description="greedy answers to agree with, a reference.json of another "
        "comparison (default: the base's)")] = None
    gate_prompts: Annotated[int, Meta(ge=1, le=80, description="greedy answers that are compared")] = 8
    gate_tokens: Annotated[int, Meta(ge=1, le=4096, description="of each of them")] = 48
    gate_agreement: Annotated[Share, Meta(description="least share of tokens up to the first that differs")] = 0.1
    gate_texts: Annotated[int, Meta(ge=1, le=50, description="texts that engines score, where they can")] = 8
    gate_perplexity: Annotated[float, Meta(ge=0, le=1e6, description="most that the perplexity of these texts may be "
        "over the reference's, as a share")] = 0.5
    gate_divergence: Annotated[float, Meta(ge=0, le=1e6, description="most divergence of the next token from the "
        "reference's, in nats")] = 0.5
    gate_sums: Annotated[int, Meta(ge=0, le=58, description="questions of GSM8K")] = 16
    gate_sum_tokens: Annotated[int, Meta(ge=1, le=4096, description="of an answer to them, at most")] = 256
    gate_sums_lost: Annotated[Share, Meta(description="of them that may be lost to the base, beyond chance")] = 0.1
    gate_valid: Annotated[Share, Meta(description="least share of structured answers that fit their schema")] = 1.0
    gate_exact: Annotated[Share, Meta(description="least share of answers with just the tokens asked for")] = 1.0


def settings(given: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Of what was `given`, else of a TOML file, else as they are by default. Raises RequestError, which names what is
    wrong."""
    values: dict[str, Any] = {}
    if config is not None:
        try:
            values = tomllib.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RequestError(f"--config: {config}: {error}") from None
    try:
        return msgspec.convert({**values, **given}, Settings)
    except msgspec.ValidationError as error:
        raise RequestError(f"settings: {str(error).replace('`$.', '`')}") from None
