"""A plot as an image file for Markdown: SVG with its own background, legible on light and dark pages."""

from __future__ import annotations

from drut.bench.render.page.forest import WIDTH, forest
from drut.bench.render.page.html import Html, el, shorten
from drut.bench.render.page.marks import COLOURS, Palette
from drut.bench.render.section import Forest

_EDGE = 12
_STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; fill: #565d66; }
.name, .heading { fill: #1d2126; } .heading { font-weight: 600; } .caption { font-weight: 600; }
.caption, .value { fill: #1d2126; } .grid { stroke: #e9ebed; } .reference { stroke: #565d66; }
.fill { fill: var(--c); } .bar, .line { stroke: var(--c); stroke-width: 2; } .mark { fill: var(--c); }
.whisker { stroke: #1d2126; stroke-width: 1.5; }
"""


def image(f: Forest, palette: Palette) -> str:
    """Returns an SVG file; it fetches nothing and has no script."""
    drawn = forest(f, palette)
    height = float(drawn.partition(f'viewBox="0 0 {WIDTH} ')[2].partition('"')[0])
    colours = "".join(f".c{i} {{ --c: {light}; }}\n" for i, (light, _) in enumerate(COLOURS))
    wide, high = WIDTH + 2 * _EDGE, height + 2 * _EDGE + 22
    inner = Html(drawn.replace("<svg ", f'<svg x="{_EDGE}" y="{_EDGE + 22}" width="{WIDTH}" height="{height:g}" ', 1))
    return el("svg", el("style", Html(_STYLE + colours)),
              el("rect", fill="#ffffff", stroke="#dcdfe2", x=0.5, y=0.5, width=wide - 1.0, height=high - 1.0, rx=6),
              el("text", shorten(f.caption, 56), class_="caption", x=_EDGE + 8, y=_EDGE + 10), inner,
              xmlns="http://www.w3.org/2000/svg", viewbox=f"0 0 {wide:g} {high:g}", width=f"{1.5 * wide:g}") + "\n"
