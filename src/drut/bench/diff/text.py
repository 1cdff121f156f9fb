"""A diff as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from drut.bench.diff.comparable import Differences
from drut.bench.diff.judge import Change
from drut.bench.render.tables import cell, plain, table
from drut.bench.report.estimates import ANSWERS
from drut.bench.report.sections.common import figure_text, title_of


def diff_text(found: Sequence[Change], known: Differences, least: float) -> str:
    """Formats the differences of the files, then a row for each figure, the worst first."""
    parts = []
    if known.reasons:
        parts.append("Compared in spite of:\n\n" + "\n".join(f"- {plain(reason)}" for reason in known.reasons))
    if known.notes:
        parts.append("\n".join(f"- {plain(note)}" for note in known.notes))
    order = {"worse": 0, "better": 1, "unknown": 2, "level": 3}
    rows = [[plain(" · ".join(part for part in (c.cell, c.who, _title(c)) if part)), _value(c, c.a), _value(c, c.b),
             _moved(c), c.verdict] for c in sorted(found, key=lambda c: order[c.verdict])]
    parts.append(table(["", "A", "B", "change, 95 % interval", "verdict"], rows))
    counts = Counter(c.verdict for c in found)
    parts.append(f"{counts['worse']} worse, {counts['better']} better, {counts['level']} level"
                 + (f", {counts['unknown']} without an interval" if counts["unknown"] else "")
                 + f"; level: explained by chance, for {len(found)} figures together, or within "
                 f"{least:.1%}.")
    return "\n\n".join(parts)


def _title(c: Change) -> str:
    return ANSWERS[c.figure] if c.figure in ANSWERS else title_of(c.figure)


def _value(c: Change, value: float | str | None) -> str:
    if c.of == "value" and c.figure not in ANSWERS:
        return figure_text(c.figure, value)  # type: ignore[arg-type]
    return cell(value)  # type: ignore[arg-type]


def _moved(c: Change) -> str:
    if c.change is None:
        return "n/a"
    points = c.unit == "share"
    shown = [f"{x * 100:+.2f}" if points else f"{x:+.1%}" for x in (c.change, c.low, c.high) if x is not None]
    return shown[0] + (f" [{shown[1]}, {shown[2]}]" if len(shown) == 3 else "") + (" points" if points else "")
