"""Draws marks on the axes of a plot: a line, a band between its bounds, and a number that the legend explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drut.bench.render.page.html import Html, el, shorten
from drut.bench.render.page.scale import Scale
from drut.bench.render.section import Mark

_APART = 10.0  # minimum distance of numbers


class Frame(NamedTuple):
    """The area of a plot."""

    left: float
    right: float
    top: float
    bottom: float


def pointers(marks: Sequence[Mark], numbers: Mapping[str, int], x: Scale, y: Scale, frame: Frame) -> list[Html]:
    """Draws marks; `numbers` are by their names. Numbers on the x axis stand above the area, those on the y axis to its
    right."""
    bands, lines, words = [], [], []
    taken = {"x": frame.left - _APART, "y": frame.bottom + _APART}
    for m in sorted(marks, key=lambda m: m.at):
        scale = x if m.axis == "x" else y
        at, (first, last) = scale(m.at), sorted((scale(m.ends[0]), scale(m.ends[1])))
        if m.limit:
            lines += _limit(m, at, frame)
            continue
        number = str(numbers[m.name])
        if m.axis == "x":
            band = el("rect", class_="band", x=first, width=last - first, y=frame.top,
                      height=frame.bottom - frame.top)
            lines.append(el("line", class_="pointer", x1=at, x2=at, y1=frame.top, y2=frame.bottom))
            taken["x"] = place = max(at, taken["x"] + _APART)
            words.append(el("text", number, class_="tick", x=place, y=frame.top - 4, text_anchor="middle"))
        else:
            band = el("rect", class_="band", x=frame.left, width=frame.right - frame.left, y=first,
                      height=last - first)
            lines.append(el("line", class_="pointer", x1=frame.left, x2=frame.right, y1=at, y2=at))
            taken["y"] = place = min(at + 4, taken["y"] - _APART)
            words.append(el("text", number, class_="tick", x=frame.right + 3, y=place))
        bands += [band] if last > first else []
    return [*bands, *lines, *words]


def _limit(m: Mark, at: float, frame: Frame) -> list[Html]:
    """Draws a limit with its name: next to a vertical line, above a horizontal one."""
    if m.axis == "y":
        return [el("line", class_="limit", x1=frame.left, x2=frame.right, y1=at, y2=at),
                el("text", shorten(m.name, 40), class_="limit", x=frame.right, y=at - 4, text_anchor="end")]
    left = at > (frame.left + frame.right) / 2
    return [el("line", class_="limit", x1=at, x2=at, y1=frame.top - 8, y2=frame.bottom),
            el("text", shorten(m.name, 24), class_="limit", x=at + (-4 if left else 4), y=frame.top - 1,
               text_anchor="end" if left else "start")]
