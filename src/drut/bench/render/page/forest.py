"""Forest plots: values with intervals below each other, as SVG."""

from __future__ import annotations

from typing import NamedTuple

from drut.bench.render.page.html import Html, el, shorten
from drut.bench.render.page.marks import Palette, mark
from drut.bench.render.page.scale import LOG, Scale, label, linear, logarithmic
from drut.bench.render.section import Forest, ReportRow

WIDTH = 400
_SIDE, _TOP, _ROW, _BOTTOM = 8, 22, 40, 38
_HEADING = 24


class _Side(NamedTuple):
    """Begin and end of the scale, and the height of a row."""

    begin: float
    end: float
    row: float


_BARS = _Side(112, WIDTH - 58, 23)
_WIDEST = 100.0  # factor on the reference; values beyond it are drawn at the edge


def forest(f: Forest, palette: Palette) -> Html:
    """Draws a forest plot. The name and value of a row are above its interval, so that long names fit a narrow screen;
    those of a bar are left and right of it."""
    side = _BARS if f.bars else _Side(_SIDE, WIDTH - _SIDE, _ROW)
    head = _TOP if f.left or f.right else 4
    heading, tops, top = "", [], float(head)
    for row in f.rows:
        top += _HEADING if row.heading != heading else 0
        heading = row.heading
        tops.append(top)
        top += side.row
    height = top + _BOTTOM
    x, bottom = _scale(f, side), height - _BOTTOM
    parts = []
    for value in x.ticks(6):
        parts += [el("line", class_="grid", x1=x(value), x2=x(value), y1=head, y2=bottom),
                  el("text", label(value), class_="tick", x=x(value), y=bottom + 15, text_anchor=_anchor(x(value)))]
    if f.reference is not None:
        parts.append(el("line", class_="reference", x1=x(f.reference), x2=x(f.reference), y1=head, y2=bottom))
    parts.append(el("text", f.x + (LOG if f.log else ""), class_="title", x=WIDTH - _SIDE, y=height - 6,
                    text_anchor="end"))
    if f.left:
        parts.append(el("text", f"← {f.left}", class_="title", x=_SIDE, y=13))
    if f.right:
        parts.append(el("text", f"{f.right} →", class_="title", x=WIDTH - _SIDE, y=13, text_anchor="end"))
    heading = ""
    for row, top in zip(f.rows, tops, strict=True):
        if row.heading != heading:
            heading = row.heading
            parts.append(el("text", shorten(heading, 56), class_="heading", x=_SIDE, y=top - 6))
        parts.append((_bar if f.bars else _row)(row, top, x, palette))
    text = "; ".join(f"{row.heading} {row.name} {row.text} {row.verdict}".strip() for row in f.rows)
    return el("svg", *parts, class_="plot", viewbox=f"0 0 {WIDTH} {height}", role="img",
              aria_label=f"{f.caption}: {text}.")


def _scale(f: Forest, side: _Side) -> Scale:
    ends = [v for row in f.rows for v in (row.low, row.value, row.high)]
    if not f.log:
        return linear(ends, side.begin, side.end)
    if f.reference is not None:
        ends = [min(max(v, f.reference / _WIDEST), f.reference * _WIDEST) for v in [*ends, f.reference]]
    return logarithmic(ends, side.begin, side.end, room=0.08)


def _anchor(at: float) -> str:
    return "start" if at < _SIDE + 12 else "end" if at > WIDTH - _SIDE - 12 else "middle"


def _row(row: ReportRow, top: float, x: Scale, palette: Palette) -> Html:
    y = top + 29
    text = row.text + (f", {row.verdict}" if row.verdict else "")
    return el("g", el("title", f"{row.name}: {text}"),
              el("line", class_="grid", x1=0, x2=WIDTH, y1=top, y2=top),
              el("text", shorten(row.name, max(56 - len(text), 10)), class_="name", x=_SIDE, y=top + 17),
              el("text", text, class_="value", x=WIDTH - _SIDE, y=top + 17, text_anchor="end"),
              *(_dots if row.dots else _interval)(row, y, x, palette.shape(row.who)),
              class_=palette.css_class(row.who))


def _interval(row: ReportRow, y: float, x: Scale, shape: int) -> list[Html]:
    return [el("line", class_="bar", x1=x(row.low), x2=x(row.high), y1=y, y2=y), mark(shape, x(row.value), y)]


def _bar(row: ReportRow, top: float, x: Scale, palette: Palette) -> Html:
    """Draws a bar from 0 with its interval in front of it, between name and value."""
    y = top + _BARS.row / 2
    return el("g", el("title", f"{row.name}: {row.text}"),
              el("text", shorten(row.name, 16), class_="name", x=_SIDE, y=y + 4),
              el("rect", class_="fill", x=x(0.0), width=max(x(row.value) - x(0.0), 1.0), y=y - 6, height=12),
              el("line", class_="whisker", x1=x(row.low), x2=x(row.high), y1=y, y2=y),
              el("text", row.text, class_="value", x=WIDTH - _SIDE, y=y + 4, text_anchor="end"),
              class_=palette.css_class(row.who))


def _dots(row: ReportRow, y: float, x: Scale, shape: int) -> list[Html]:
    """Draws a dot for each value, and a vertical line at their summary."""
    at = x(row.value)
    return [el("line", class_="line", x1=x(row.low), x2=x(row.high), y1=y, y2=y),
            el("line", class_="bar", x1=at, x2=at, y1=y - 7, y2=y + 7),
            *(mark(shape, x(value), y, r=3.0, title=label(value)) for value in row.dots)]
