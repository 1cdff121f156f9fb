"""Workloads by name, and the syntax of `--workload`: `name` or `name:key=value,key=value`."""

from __future__ import annotations

import dataclasses
from typing import Any

from drut.bench.tokens import BenchTokenizer
from drut.bench.workloads.agent import Agent, AgentGraph
from drut.bench.workloads.azure import AzureCode, AzureConv
from drut.bench.workloads.datasets import GSM8K, MTBench
from drut.bench.workloads.jsonl import OwnFile
from drut.bench.workloads.long_context import LongContext
from drut.bench.workloads.mooncake import MooncakeConversation, MooncakeSynthetic
from drut.bench.workloads.multi_turn import MultiTurn
from drut.bench.workloads.reasoning import ReasoningWorkload
from drut.bench.workloads.shared_prefix import SharedPrefix
from drut.bench.workloads.synthetic import Synthetic
from drut.bench.workloads.tools import Tools
from drut.bench.workloads.workload import Sessions, Workload, WorkloadContext
from drut.config import parse_value
from drut.errors import RequestError

_KINDS: tuple[type[Workload], ...] = (
    Synthetic, MTBench, GSM8K, SharedPrefix, MultiTurn, Agent, AgentGraph, Tools, LongContext, ReasoningWorkload,
    AzureCode, AzureConv, MooncakeConversation, MooncakeSynthetic, OwnFile,
)
WORKLOADS: dict[str, type[Workload]] = {kind.name: kind for kind in _KINDS}


def load(
    spec: str | Workload, *, tokenizer: BenchTokenizer | None, seed: int, chat: bool = True, ids: bool = False,
    no_tokenizer: str = "", most: int | None = None,
) -> Sessions:
    """Returns the sessions of `spec`, a workload or its text, the same for the same tokenizer and seed. `most`: the
    maximum number of their requests.

    `chat`: turns hold messages; otherwise a prompt, which is token ids if `ids` is set. `tokenizer` may be None for
    workloads with given texts; `input_tokens` is then None, and `no_tokenizer` is the reason. Raises RequestError with
    the invalid workload, option or value, or with what the workload needs.
    """
    if not 0 <= seed < 1 << 63:
        raise RequestError(f"seed must be from 0 to 2^63-1, not {seed}")
    if chat and ids:
        raise RequestError("prompts of token ids need the completions endpoint, not chat")
    workload = parse(spec) if isinstance(spec, str) else spec
    return Sessions(workload, WorkloadContext(workload=workload.name, seed=seed, chat=chat, ids=ids,
                                              tokenizer=tokenizer, no_tokenizer=no_tokenizer), most)


def parse(spec: str) -> Workload:
    """Parses the workload and its options. Raises RequestError, which lists the known names or keys."""
    name, _, rest = spec.partition(":")
    if name not in WORKLOADS:
        raise RequestError(f"unknown workload {name[:40]!r}; workloads are {', '.join(WORKLOADS)}")
    kind = WORKLOADS[name]
    options = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, text = part.partition("=")
        key = key.strip()
        if key not in options or not equals:
            raise RequestError(f"workload {name!r} has no option {part[:40]!r}; options are "
                               f"{', '.join(f'{o}=' for o in options)}")
        if key in values:
            raise RequestError(f"workload {name!r}: {key} is given twice")
        values[key] = parse_value(f"workload {name!r}: {key}", text.strip(), options[key].metadata["type"])
    return kind(**values)


def help_text() -> str:
    """Returns all workloads with their options and defaults, for `--workload help`."""
    lines = []
    for kind in WORKLOADS.values():
        lines.append(f"{kind.name}: {kind.help}")
        for field in dataclasses.fields(kind):
            lines.append(f"    {field.name}={default_of(field)}  {field.metadata['help']}")
    return "\n".join(lines)


def default_of(option: dataclasses.Field[Any]) -> str:
    """Returns an option's default in the syntax of `--workload`; empty if there is none."""
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return "" if option.default is None else f"{option.default}"
