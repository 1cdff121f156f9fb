"""The last lines of a terminal, rewritten in place while they change."""

from __future__ import annotations

import re
from typing import IO

from rich.cells import cell_len

_STYLE_CODES = re.compile(r"\x1b\[[0-9;]*m")


class LiveRegion:
    """Writes final lines, which scroll away, and below them live lines, which the next `draw` replaces.

    The cursor stays at the end of the last live line, or on an empty line if there is none. Only lines that changed
    are written again.
    """

    def __init__(self, out: IO[str]) -> None:
        """The cursor is at the start of a line."""
        self._out = out
        self._shown = [""]  # the live lines

    def draw(self, final: list[str], live: list[str], width: int, height: int) -> None:
        """Writes `final` lines and replaces the live lines, of which the screen has the last `height` - 1.

        `width` in cells: the terminal may have been resized since the last call, which wraps what it shows again.
        """
        old, self._shown = self._shown, live[-max(1, height - 1):] or [""]
        new = [*final, *self._shown]
        same = 0
        while same < min(len(old), len(new)) and old[same] == new[same]:
            same += 1
        if same == len(old):
            text = "\n" if len(new) > same else ""
        elif same == len(old) - 1 and same < len(new) and new[same].startswith(old[same]):
            text, new[same] = "", new[same].removeprefix(old[same])  # the last line has grown
        else:
            same = min(same, len(new) - 1)
            up = sum(_rows(line, width) for line in old[same:]) - 1
            text = (f"\x1b[{up}A" if up else "") + "\r\x1b[J"
        self._out.write(text + "\n".join(new[same:]))
        self._out.flush()


def _rows(line: str, width: int) -> int:
    """Returns the number of rows that a line takes."""
    return max(1, -(-cell_len(_STYLE_CODES.sub("", line)) // width))
