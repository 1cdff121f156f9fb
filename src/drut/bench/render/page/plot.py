"""Line plots as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drut.bench.render.page.html import Html, el, shorten
from drut.bench.render.page.marks import Palette, mark
from drut.bench.render.page.pointers import Frame, pointers
from drut.bench.render.page.scale import LOG, MAX, Scale, label, linear, logarithmic
from drut.bench.render.section import ChartAxis, Plot, ReportLine

WIDTH, HEIGHT = 400, 264
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 32, 42


def plot(p: Plot, palette: Palette, numbers: Mapping[str, int]) -> Html:
    """Draws lines over a grid; the titles of the axes are horizontal, at the top and at the bottom. `numbers`: the
    numbers of its marks, by name."""
    points = [point for line in p.lines for point in line.points if max(point) <= MAX]
    bars = [end for line in p.lines for bar in line.bars for end in bar]
    ends = {axis: [end for m in p.marks if m.axis == axis for end in (m.at, *m.ends)] for axis in ("x", "y")}
    x = _scale(p.x, [*(px for px, _ in points), *ends["x"]], _LEFT, WIDTH - _RIGHT)
    y = _scale(p.y, [*(py for _, py in points), *bars, *ends["y"]], HEIGHT - _BOTTOM, _TOP)
    frame = Frame(_LEFT, WIDTH - _RIGHT, _TOP, HEIGHT - _BOTTOM)
    parts: list[Html] = [*_grid(p, x, y), *pointers(p.marks, numbers, x, y, frame)]
    taken: list[tuple[float, float]] = []
    for line in sorted(p.lines, key=lambda line: not line.faint):
        parts.append(_line(line, x, y, palette, taken))
    return el("svg", *parts, class_="plot", viewbox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=_alt(p))


def _scale(axis: ChartAxis, values: Sequence[float], begin: float, end: float) -> Scale:
    if axis.log and any(v > 0 for v in values):
        return logarithmic(values, begin, end)
    return linear(values, begin, end, at_most=axis.at_most)


def _grid(p: Plot, x: Scale, y: Scale) -> list[Html]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for value in y.ticks(6):
        at = y(value)
        parts += [el("line", class_="grid", x1=_LEFT, x2=right, y1=at, y2=at),
                  el("text", label(value), class_="tick", x=_LEFT - 6, y=at + 3.5, text_anchor="end")]
    end = -1.0
    for value in x.ticks(7):
        at, half = x(value), 3.6 * len(label(value)) + 3
        if at - half < end:
            continue
        end = at + half
        parts += [el("line", class_="grid", x1=at, x2=at, y1=_TOP, y2=bottom),
                  el("text", label(value), class_="tick", x=at, y=bottom + 15, text_anchor="middle")]
    parts += [el("line", class_="axis", x1=_LEFT, x2=right, y1=bottom, y2=bottom),
              el("text", p.y.title + (LOG if y.log else ""), class_="title", x=4, y=14),
              el("text", p.x.title + (LOG if x.log else ""), class_="title", x=right, y=HEIGHT - 6, text_anchor="end")]
    return parts


def _line(line: ReportLine, x: Scale, y: Scale, palette: Palette, taken: list[tuple[float, float]]) -> Html:
    """Draws a line. `taken`: the places of names already drawn; a name is not drawn over another."""
    at = [(x(px), y(py)) for px, py in line.points]
    d = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in at)
    parts = [el("path", class_=f"line d{line.dash}", d=d) if len(at) > 1 else None]
    for (px, _), (low, high) in zip(at, line.bars, strict=False):
        parts.append(el("line", class_="bar", x1=px, x2=px, y1=y(low), y2=y(high)))
    marked = range(len(at)) if line.marks == "all" or len(at) == 1 else [len(at) // 2] if line.marks == "middle" else []
    if marked:
        shape = palette.shape(line.who)
        for i in marked:
            (px, py), (vx, vy) = at[i], line.points[i]
            name = line.names[i] if i < len(line.names) else ""
            text = f"{line.name}{', ' + name if name else ''}: {label(vx)}, {label(vy)}"
            parts.append(mark(shape, px, py, title=text))
            if name and all(abs(px - ox) > 40 or abs(py - oy) > 14 for ox, oy in taken):
                taken.append((px, py))
                parts.append(_name(name, px, py))
    return el("g", *parts, class_=palette.css_class(line.who) + (" faint" if line.faint else ""))


def _name(name: str, x: float, y: float) -> Html:
    short = name.removesuffix(" users").removesuffix(" user")
    left = x > WIDTH - _RIGHT - 6.5 * len(short) - 8
    return el("text", shorten(short, 24), class_="point", x=x + (-7 if left else 7), y=y - 5,
              text_anchor="end" if left else "start")


def _alt(p: Plot) -> str:
    """Describes the plot in words; the table below it has the figures."""
    text = [f"{line.name} from {label(line.points[0][1])} at {label(line.points[0][0])} to "
            f"{label(line.points[-1][1])} at {label(line.points[-1][0])}"
            for line in p.lines if line.points and not line.faint]
    places = [f"{m.name} at {label(m.at)}" for m in p.marks]
    return f"{p.caption}: {p.y.title} by {p.x.title}. " + "; ".join([*text, *places]) + "."
