"""Tables and figures of the summary."""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.stats.distribution import Figure


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read as it is."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["| " + " | ".join(f"{cell:{'<' if i == 0 else '>'}{w}}" for i, (cell, w)
                               in enumerate(zip(row, widths, strict=True))) + " |" for row in (head, *rows)]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def cell(value: Figure) -> str:
    """Four digits that count, or why there are none."""
    if value is None:
        return "n/a"
    if value == "inf":
        return "failed"
    return f"{value:.4g}" if abs(float(value)) < 1e4 else f"{float(value):.0f}"


def plain(text: str) -> str:
    """A server's words must not become markup (a link, an image that is fetched, HTML), or steer a terminal."""
    return printable(text).replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("](", "]\\(")


def printable(text: str) -> str:
    """With a space for each character that would steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def share(value: float | None) -> str:
    """Of a whole, in percent."""
    return "n/a" if value is None else f"{value:.1%}"
