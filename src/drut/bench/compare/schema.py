"""`comparison.json`, as data. SCHEMA changes when a field changes its meaning or goes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "drut.comparison/1"
GSM8K_TELLS = 0.05  # share of right answers, above which GSM8K is shown and judged


class Gate(msgspec.Struct, frozen=True):
    """What an engine had to show before its speed counts. Shares from 0 to 1, None where it was not asked. `passed`
    False keeps it out of every ranking, with the reasons."""

    passed: bool
    reasons: list[str]
    agreement: float | None = None  # greedy tokens equal to the reference's up to the first that differs, as a share
    gsm8k: float | None = None
    schema_valid: float | None = None
    lengths_exact: float | None = None  # answers that had just the tokens that were asked for
    asked: dict[str, int] = {}  # requests behind each figure
    differs_at: list[int | None] = []  # the first token of each answer that is not the reference's; None: none
    sums: list[bool] = []  # of GSM8K, by question
    perplexity: float | None = None  # of texts that it scored, None where it scores none
    perplexity_increase: float | None = None  # over the reference's, as a share; None where there is none to compare
    divergence: float | None = None  # KL(reference || own) of the next token, nats, at least
    judged_on: list[str] = []  # the figures that could fail it
    scores_of: str = ""  # whose perplexity and divergence are the reference


class Contestant(msgspec.Struct, frozen=True):
    """An engine in a comparison, and what became of it."""

    name: str  # unique in the comparison
    engine: str
    title: str
    outcome: Literal["measured", "failed", "cannot run", "gate"]
    why: str = ""
    weights: str = ""
    verified: bool = True
    remarks: list[str] = []
    versions: dict[str, str] = {}
    earlier: list[dict[str, str]] = []  # versions of rounds before, where they were others
    command: list[str] = []
    ready_s: float | None = None
    ready_mb: float | None = None  # of its processes once it serves, what they share once
    peak_mb: float | None = None  # what each of them had at most, less what they share
    gate: Gate | None = None


class Cell(msgspec.Struct, frozen=True):
    """One kind of work: a workload under a load. One of `concurrency` and `rate` is given."""

    name: str
    workload: str
    concurrency: int | None = None
    rate: float | None = None


class Block(msgspec.Struct, frozen=True):
    """One engine's turn at a cell. `figures` are of `drut.bench.result.figures.FIGURES`; None: nothing to measure,
    "inf": a percentile fell on failures. `samples`: by latency, sorted milliseconds of its requests."""

    round: int
    turn: int  # its place in the order of the round
    contestant: str
    cell: str
    valid: bool
    reasons: list[str]
    figures: dict[str, float | Literal["inf"] | None]
    samples: dict[str, list[float]]
    timeline: list[float] = []  # output tokens of each second
    started: str = ""
    held_up: bool = False  # void since the client was, and for nothing else
    again: bool = False  # a second try, with other requests


class Ratio(msgspec.Struct, frozen=True):
    """`contestant` over `base` in a figure, with a 95 % interval over rounds. `verdict` is of the contestant; "level":
    the interval holds 1, or the rounds are too few, so the two are not ranked."""

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
    """Contestants by a figure of a cell, best group first; within a group they cannot be told apart, be it by way of a
    third."""

    cell: str
    figure: str
    groups: list[list[str]]


class Comparison(msgspec.Struct, frozen=True):
    """The whole file. `finished`: no turn is missing but those of contestants that failed."""

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
