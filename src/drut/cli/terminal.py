"""Text to people: answers as they come on standard output, notes on standard error."""

from __future__ import annotations

import re
import sys

# Line ends and tabs are text. Of a model's words nothing else may steer a terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Writer:
    """Text on standard output, piece by piece: to a pipe as it is, to a terminal without control characters.

    Leaving the `with` block ends the last line where the text did not.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._line_open = False
        self.thought = False  # what was shown last is an aside that the text must be set off from

    def write(self, text: str) -> None:
        """Shows `text` at once."""
        if self._terminal:
            text = _CONTROLS.sub("", text)
        if text:
            self._line_open = not text.endswith("\n")
            print(text, end="", flush=True)

    def aside(self, text: str) -> None:
        """Shows `text` dimmed on a terminal, and nowhere else."""
        if self._terminal and (text := _CONTROLS.sub("", text)):
            self._line_open = not text.endswith("\n")
            print(f"\x1b[2m{text}\x1b[22m", end="", flush=True)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line_open:
            self.write("\n")


def note(text: str) -> None:
    """A line about the work, not part of it: on standard error, dim on a terminal."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(text, style="dim", markup=False, emoji=False)


def one_line(text: str) -> str:
    """`text` with line ends and other control characters escaped: names in it may come from hostile files."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
