"""Tables and figures of summaries."""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.stats.distribution import Figure


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["| " + " | ".join(f"{cell:{'<' if i == 0 else '>'}{w}}" for i, (cell, w)
                               in enumerate(zip(row, widths, strict=True))) + " |" for row in (head, *rows)]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def cell(value: Figure) -> str:
    """Formats a value with four significant digits, or the reason why there is none."""
    if value is None:
        return "n/a"
    if value == "inf":
        return "failed"
    return f"{value:.4g}" if abs(float(value)) < 1e4 else f"{float(value):.0f}"


def plain(text: str) -> str:
    """Escapes foreign text, so that it cannot be markup (a link, a fetched image, HTML) or control a terminal."""
    return printable(text).replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("](", "]\\(")


def printable(text: str) -> str:
    """Replaces each character that controls a terminal with a space."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def share(value: float | None) -> str:
    """Formats a share in percent."""
    return "n/a" if value is None else f"{value:.1%}"
