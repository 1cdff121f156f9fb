"""Tables of text for people: aligned columns under titles."""

from __future__ import annotations

import time
from collections.abc import Sequence

from drut.cli.terminal import one_line

UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Returns lines of columns, those of `right` aligned to the right; the last column ends where its text does."""
    cells = [[one_line(cell) for cell in row] for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if i in right else cell.ljust(width)
                  for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in cells)


def size(nbytes: int | None) -> str:
    """Returns bytes in the decimal unit that fits."""
    if nbytes is None:
        return "-"
    for unit, name in UNITS:
        if nbytes >= unit:
            return f"{nbytes / unit:.0f} {name}" if nbytes >= 100 * unit else f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} B"


def age(seconds: float) -> str:
    """Returns a duration in its two largest units."""
    minutes, s = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {s} s" if minutes else f"{s} s"


def date(seconds: float) -> str:
    """Returns the local date and time of seconds since the epoch, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
