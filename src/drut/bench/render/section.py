"""The content of a report, independent of Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias


class Note(NamedTuple):
    """A paragraph. A warning means that figures may not be quoted; `points` are a list below it, which a page folds
    under a warning."""

    text: str
    points: Sequence[str] = ()
    warning: bool = False


class Table(NamedTuple):
    """Cells as text. `folded`: a page shows the table on demand."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    folded: bool = False


class Facts(NamedTuple):
    """The circumstances of a measurement, as names and values above its figures."""

    rows: Sequence[tuple[str, str]]


class Tile(NamedTuple):
    """A headline figure. `about` are lines below it. `mark` is whether `limit` holds, empty without a limit."""

    title: str
    value: str
    unit: str = ""
    about: Sequence[str] = ()
    mark: Literal["", "pass", "fail"] = ""
    limit: str = ""


class Tiles(NamedTuple):
    """The headline figures, in the order of their importance."""

    tiles: Sequence[Tile]


class ChartAxis(NamedTuple):
    """An axis of a plot. Linear axes begin at 0; `at_most` is the end of an axis for shares."""

    title: str
    log: bool = False
    at_most: float | None = None


class ReportLine(NamedTuple):
    """Points in order. `who` sets colour and mark; `dash` (0 to 2) distinguishes lines of one engine. `faint`: one of
    several lines that another one summarizes. `names` are those of points, `bars` their intervals. A mark in the middle
    distinguishes lines without colour."""

    name: str
    who: str
    points: Sequence[tuple[float, float]]
    dash: int = 0
    marks: Literal["none", "all", "middle"] = "none"
    faint: bool = False
    names: Sequence[str] = ()
    bars: Sequence[tuple[float, float]] = ()


class Mark(NamedTuple):
    """A marked value on an axis, with its bounds. `limit`: the plot shows the name itself instead of a number."""

    at: float
    name: str
    low: float | None = None
    high: float | None = None
    axis: Literal["x", "y"] = "x"
    limit: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """Returns its bounds; the value itself if a bound is unknown."""
        return self.at if self.low is None else self.low, self.at if self.high is None else self.high


class Plot(NamedTuple):
    """Lines over an axis. `twin` is a table with the same figures."""

    caption: str
    x: ChartAxis
    y: ChartAxis
    lines: Sequence[ReportLine]
    twin: Table
    marks: Sequence[Mark] = ()


class ReportRow(NamedTuple):
    """A value with its interval. `text`: the value as text. Successive rows share a `heading`. `dots`: the values
    behind it, drawn in its place."""

    name: str
    who: str
    value: float
    low: float
    high: float
    text: str
    verdict: str = ""
    heading: str = ""
    dots: Sequence[float] = ()


class Forest(NamedTuple):
    """Values with intervals below each other, on one scale with the title `x`; `reference` is a line for comparison.
    `left` and `right` explain its sides. `bars`: from 0 to each value, on a linear scale."""

    caption: str
    x: str
    rows: Sequence[ReportRow]
    twin: Table
    reference: float | None = None
    log: bool = True
    left: str = ""
    right: str = ""
    bars: bool = False


class ReportGroup(NamedTuple):
    """Plots under one heading with a common legend."""

    title: str
    plots: Sequence[Plot | Forest]
    text: str = ""


Part: TypeAlias = Note | Table | ReportGroup | Facts | Tiles


class Section(NamedTuple):
    """The part of a report about one file; `kind` is the kind of file. `engines`: its engines, in the order of their
    colours."""

    kind: Literal["result", "results", "comparison", "search", "ablation"]
    title: str
    parts: Sequence[Part]
    engines: Sequence[str] = ()
