"""Colours and marks: an engine has the same ones throughout a report."""

from __future__ import annotations

import math
from collections.abc import Iterable

from drut.bench.render.page.html import Html, el
from drut.bench.render.section import Forest, ReportGroup, Section

# (light, dark) pairs, distinguishable with red-green blindness, each with a contrast of 3 to 1 on its background.
COLOURS = (("#2c93ff", "#4f74d4"), ("#ea6119", "#f8c6a3"), ("#46a28f", "#259249"), ("#9c37a7", "#e194f8"),
           ("#5c5d16", "#d4b156"), ("#2e2e2e", "#aaaaaa"), ("#529cbf", "#23a0c5"), ("#995973", "#be7185"))


class Palette:
    """Numbers the engines, in the order of their first use."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._number: dict[str, int] = {}
        for section in sections:
            for who in section.engines:
                self.number(who)
            for part in section.parts:
                if isinstance(part, ReportGroup):
                    for plot in part.plots:
                        items = plot.rows if isinstance(plot, Forest) else plot.lines
                        for item in items:
                            self.number(item.who)

    def number(self, who: str) -> int:
        """Returns the number of an engine."""
        return self._number.setdefault(who, len(self._number))

    def shape(self, who: str) -> int:
        """Returns the shape of an engine's mark; it changes when colours repeat."""
        number = self.number(who)
        return number + 3 * (number // len(COLOURS))

    def css_class(self, who: str) -> str:
        """Returns the CSS class with an engine's colour."""
        return f"c{self.number(who) % len(COLOURS)}"


def mark(shape: int, x: float, y: float, r: float = 3.6, title: str = "") -> Html:
    """Draws one of eight marks: circle, square, diamond and triangle, filled and then hollow, of about the same
    area."""
    kind = shape % 4
    if kind == 0:
        d = f"M{x - r:.1f} {y:.1f}a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0Z"
    else:
        corners, start, size = ((4, math.pi / 4, 1.25), (4, 0.0, 1.35), (3, -math.pi / 2, 1.45))[kind - 1]
        turns = [start + 2 * math.pi * i / corners for i in range(corners)]
        d = "M" + "L".join(f"{x + size * r * math.cos(t):.1f} {y + size * r * math.sin(t):.1f}" for t in turns) + "Z"
    drawn = el("path", class_="mark" if shape % 8 < 4 else "mark hollow", d=d)
    return el("g", el("title", title), drawn) if title else drawn


def key(shape: int, colour: str, *, dash: int = 0) -> Html:
    """Draws the key of a name in a legend."""
    return el("svg", el("line", class_=f"line d{dash}", x1=0, y1=7, x2=28, y2=7), mark(shape, 14, 7),
              class_=f"key {colour}", viewbox="0 0 28 14", width=28, height=14, aria_hidden="true")
