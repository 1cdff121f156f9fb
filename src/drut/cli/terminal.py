"""Output for people: answers on standard output as they come, notes on standard error."""

from __future__ import annotations

import re
import sys

# Line ends and tabs are text. All other control characters of a model's text are removed at a terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Writer:
    """Writes text to standard output in pieces: unchanged to a pipe, without control characters to a terminal.

    Leaving the `with` block ends the last line if the text did not.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._line_open = False
        self.after_reasoning = False  # reasoning was shown last, so an empty line must precede the answer

    def write(self, text: str) -> None:
        """Shows `text` at once."""
        if self._terminal:
            text = _CONTROLS.sub("", text)
        if text:
            self._line_open = not text.endswith("\n")
            print(text, end="", flush=True)

    def aside(self, text: str) -> None:
        """Shows `text` dimmed, only on a terminal."""
        if self._terminal and (text := _CONTROLS.sub("", text)):
            self._line_open = not text.endswith("\n")
            print(f"\x1b[2m{text}\x1b[22m", end="", flush=True)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line_open:
            self.write("\n")


def note(text: str) -> None:
    """Prints a note on standard error, dimmed on a terminal."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(text, style="dim", markup=False, emoji=False)


def one_line(text: str) -> str:
    """Returns `text` with line ends and other control characters escaped, because names may come from hostile files."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
