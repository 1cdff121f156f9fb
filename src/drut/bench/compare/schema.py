"""The schema of `comparison.json`. SCHEMA changes when a field is removed or changes its meaning."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "drut.comparison/1"
GSM8K_LEAST = 0.05  # share of right answers above which GSM8K is shown and judged


class GateRecord(msgspec.Struct, frozen=True):
    """The results of the gate. Shares from 0 to 1, None if not tested. `passed` False excludes the engine from every
    ranking, with the reasons."""

    passed: bool
    reasons: list[str]
    agreement: float | None = None  # greedy tokens equal to the reference's before the first difference, as a share
    gsm8k: float | None = None
    schema_valid: float | None = None
    lengths_exact: float | None = None  # answers with exactly the requested number of tokens
    asked: dict[str, int] = {}  # number of requests behind each figure
    differs_at: list[int | None] = []  # the first token of each answer that differs from the reference's; None: none
    sums: list[bool] = []  # of GSM8K, by question
    perplexity: float | None = None  # of the texts it scored, None if it scores none
    perplexity_increase: float | None = None  # over the reference's, as a share; None if there is none to compare
    divergence: float | None = None  # KL(reference || own) of the next token, nats, a lower bound
    judged_on: list[str] = []  # the figures that could fail it
    scores_of: str = ""  # the contestant whose perplexity and divergence are the reference


class Contestant(msgspec.Struct, frozen=True):
    """An engine in a comparison, and its outcome."""

    name: str  # unique in the comparison
    engine: str
    title: str
    outcome: Literal["measured", "failed", "cannot run", "gate"]
    why: str = ""
    weights: str = ""
    verified: bool = True
    remarks: list[str] = []
    versions: dict[str, str] = {}
    earlier: list[dict[str, str]] = []  # versions in earlier rounds, if they differed
    command: list[str] = []
    ready_s: float | None = None
    ready_mb: float | None = None  # of its processes once it serves, shared pages counted once
    peak_mb: float | None = None  # the sum of its processes' peaks, less shared pages
    gate: GateRecord | None = None


class Cell(msgspec.Struct, frozen=True):
    """One kind of work: a workload and its load. One of `concurrency` and `rate` is set."""

    name: str
    workload: str
    concurrency: int | None = None
    rate: float | None = None


class Block(msgspec.Struct, frozen=True):
    """One engine's turn at a cell. `figures` are those of `drut.bench.result.figures.FIGURES`; None: nothing to
    measure, "inf": a percentile fell on failures. `samples`: by latency, the sorted milliseconds of its requests."""

    round: int
    turn: int  # its position in the round
    contestant: str
    cell: str
    valid: bool
    reasons: list[str]
    figures: dict[str, float | Literal["inf"] | None]
    samples: dict[str, list[float]]
    timeline: list[float] = []  # output tokens of each second
    started: str = ""
    held_up: bool = False  # void only because the client was late
    again: bool = False  # a second try, with other requests


class Ratio(msgspec.Struct, frozen=True):
    """The ratio `contestant` / `base` of a figure, with a 95 % interval over rounds. `verdict` is about the contestant;
    "level": the interval contains 1, or there are too few rounds, so the two are not ranked."""

    cell: str
    figure: str
    contestant: str
    base: str
    value: float
    low: float
    high: float
    rounds: int
    verdict: Literal["better", "worse", "level"]


class Ranking(msgspec.Struct, frozen=True):
    """Contestants by a figure of a cell, best group first; the members of a group are indistinguishable, if only
    through a third one."""

    cell: str
    figure: str
    groups: list[list[str]]


class Comparison(msgspec.Struct, frozen=True):
    """The whole file. `finished`: no turn is missing except those of failed contestants."""

    schema: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    model: str
    contestants: list[Contestant]
    cells: list[Cell]
    blocks: list[Block]
    ratios: list[Ratio]
    base: str
    notes: list[str] = []
    cost_per_hour: float | None = None
    currency: str = "USD"
    rankings: list[Ranking] = []
    finished: bool = True
