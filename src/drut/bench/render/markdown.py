"""Renders sections as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drut.bench.render.section import Note, Part, ReportGroup, Section, Table
from drut.bench.render.tables import plain, printable, table


def report(sections: Sequence[Section]) -> str:
    """Renders a whole report, with plots as the tables behind them."""
    return whole(text for section in sections for text in (
        f"# {plain(section.title)}", *(part_text(part) for part in section.parts)))


def whole(texts: Iterable[str]) -> str:
    """Joins texts, without the empty ones."""
    text = "\n\n".join(text for text in texts if text)
    return "\n".join(map(printable, text.split("\n")))  # names, too, may come from others


def part_text(part: Part, captions: bool = True) -> str:
    """Renders a part of a section."""
    if isinstance(part, Note):
        text = f"**{plain(part.text)}**" if part.warning else plain(part.text)
        return text + ("\n\n" + "\n".join(f"- {plain(point)}" for point in part.points) if part.points else "")
    if isinstance(part, ReportGroup):
        texts = [f"## {plain(part.title)}", plain(part.text), *(_table(plot.twin) for plot in part.plots)]
        return "\n\n".join(text for text in texts if text)
    return _table(part, captions)


def _table(t: Table, captions: bool = True) -> str:
    text = table([plain(name) for name in t.head], [[plain(value) for value in row] for row in t.rows])
    return "\n\n".join(x for x in (f"### {plain(t.caption)}" if captions else "", text, plain(t.note)) if x)
