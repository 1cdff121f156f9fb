"""Renders sections as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drut.bench.render.section import Facts, Note, Part, ReportGroup, Section, Table, Tile, Tiles
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
    if isinstance(part, Facts):
        return "\n".join(f"- {plain(name)}: {plain(value)}" for name, value in part.rows)
    if isinstance(part, Tiles):
        return table(["", "", ""], [[plain(text) for text in _tile(tile)] for tile in part.tiles])
    return _table(part, captions)


def _tile(t: Tile) -> tuple[str, str, str]:
    kept = [f"{t.mark}: {t.limit}"] if t.mark else []
    return t.title, f"{t.value} {t.unit}".strip(), "; ".join([*kept, *t.about])


def _table(t: Table, captions: bool = True) -> str:
    text = table([plain(name) for name in t.head], [[plain(value) for value in row] for row in t.rows])
    return "\n\n".join(x for x in (f"### {plain(t.caption)}" if captions else "", text, plain(t.note)) if x)
