"""An ablation as Markdown: a table, and a paragraph for each technique."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from drut.bench.ablate.document import NOTHING
from drut.bench.ablate.schema import Ablation, Effect, Technique
from drut.bench.ablate.words import SHORT, found, interval
from drut.bench.render.tables import cell, plain, table
from drut.bench.result.figures import FIGURES


def summary(ablation: Ablation) -> str:
    """Returns the text of summary.md."""
    return "\n\n".join([f"# What each technique buys: {plain(ablation.model)}", _how(ablation), *_body(ablation)])


def _body(ablation: Ablation) -> list[str]:
    """Returns the table, the techniques, and the failures."""
    rows = [row for technique in ablation.techniques for row in _rows(technique, ablation.effects)]
    head = ["technique", "work", "figure", "off", "on", "on / off", "expected", "found"]
    parts = [table(head, rows) if rows else NOTHING, *map(_section, ablation.techniques), _cells(ablation)]
    lost = [f"- {c.name}: {c.outcome}. {plain(c.why)}" for c in ablation.contestants if c.outcome != "measured"]
    lost += [f"- {plain(note)}" for note in ablation.notes]
    return [*parts, *(["## What went wrong", "\n".join(lost)] if lost else [])]


def _how(ablation: Ablation) -> str:
    settings, count = ablation.settings, len(ablation.effects)
    chance = f" Of {count} ratios, about {count / 20:.1f} intervals would exclude 1 by chance." if count else ""
    least = settings.get("duration_s", 0)
    return (f"Two servers for each technique, one with it and one without, take turns at the same requests in blocks "
            f"of {least:g} s or more (on and off, then off and on), while the other is suspended. "
            "`off` and `on` are medians over the rounds; `on / off` is the geometric mean of the rounds' ratios with "
            "its 95 % interval. An effect is reported only if the interval of at least three rounds excludes 1, and "
            "no relevant effect (under 10 %) only if the interval lies within 10 % of 1. Otherwise the result is open."
            + chance)


def _rows(technique: Technique, effects: Sequence[Effect]) -> list[list[str]]:
    return [[technique.name, e.cell, _title(e.figure), cell(e.off), cell(e.on), interval(e), e.expected,
             SHORT[found(e)]] for e in effects if e.technique == technique.name]


def _title(figure: str) -> str:
    kind = FIGURES[figure]
    return f"{kind.title}, {kind.unit}"


def _section(technique: Technique) -> str:
    off, on = (shlex.join(flags) or "as it is" for flags in (technique.off, technique.on))
    return (f"## {technique.title}\n\n{technique.about} *Off:* `{off}`. *On:* `{on}`.\n\n"
            f"**{technique.shows or 'Not measured.'}**")


def _cells(ablation: Ablation) -> str:
    rows = [[c.name, f"`{c.workload}`", f"{c.concurrency} at a time" if c.rate is None else f"{c.rate:g} a second"]
            for c in ablation.cells]
    return "## The work\n\n" + table(["work", "workload", "load"], rows) if rows else ""
