"""What a report is made of, before it is Markdown or a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias


class Note(NamedTuple):
    """A paragraph. A warning says that something may not be quoted; `points` are listed below it."""

    text: str
    points: Sequence[str] = ()
    warning: bool = False


class Table(NamedTuple):
    """Cells as they are shown. `folded`: a page shows it on demand."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    folded: bool = False


class Axis(NamedTuple):
    """Of a plot. Linear axes begin at 0; `at_most` is where one ends, for shares."""

    title: str
    log: bool = False
    at_most: float | None = None


class Line(NamedTuple):
    """Points in their order. `who` fixes colour and mark; `dash` (0 to 2) tells apart lines of one engine. `faint`: one
    of several that a line sums up. `names` are of points, `bars` their intervals. A mark in the middle tells lines
    apart without colour."""

    name: str
    who: str
    points: Sequence[tuple[float, float]]
    dash: int = 0
    marks: Literal["none", "all", "middle"] = "none"
    faint: bool = False
    names: Sequence[str] = ()
    bars: Sequence[tuple[float, float]] = ()


class Mark(NamedTuple):
    """A place on an axis to point at, and what it lies between."""

    at: float
    name: str
    low: float | None = None
    high: float | None = None
    axis: Literal["x", "y"] = "x"

    @property
    def ends(self) -> tuple[float, float]:
        """What it lies between; the place itself where one end is not known."""
        return self.at if self.low is None else self.low, self.at if self.high is None else self.high


class Plot(NamedTuple):
    """Lines over an axis. `twin` has the same figures as a table."""

    caption: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    twin: Table
    marks: Sequence[Mark] = ()


class Row(NamedTuple):
    """A value with its interval. `said`: the value in words. Rows that follow each other share a `heading`. `dots`: the
    values that it sums up, drawn in its place."""

    name: str
    who: str
    value: float
    low: float
    high: float
    said: str
    verdict: str = ""
    heading: str = ""
    dots: Sequence[float] = ()


class Forest(NamedTuple):
    """Values with intervals below each other, on one scale, of which `x` is the title; `reference` is a line to compare
    with. `left` and `right` say what it means to lie there."""

    caption: str
    x: str
    rows: Sequence[Row]
    twin: Table
    reference: float | None = None
    log: bool = True
    left: str = ""
    right: str = ""


class Group(NamedTuple):
    """Plots under one heading, which share their legend."""

    title: str
    plots: Sequence[Plot | Forest]
    text: str = ""


Part: TypeAlias = Note | Table | Group


class Section(NamedTuple):
    """One file's part of a report; `kind` names what the file is. `whos`: the engines in it, in the order in which they
    take colours."""

    kind: Literal["result", "results", "comparison", "search", "ablation"]
    title: str
    parts: Sequence[Part]
    whos: Sequence[str] = ()
