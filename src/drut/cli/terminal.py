"""Output for people: answers on standard output as they come, notes on standard error."""

from __future__ import annotations

import os
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
        self._after_aside = False

    def write(self, text: str) -> None:
        """Shows `text` at once, after an aside with an empty line between."""
        if self._terminal:
            text = printable(text)
        if text:
            gap, self._after_aside = "\n\n" * self._after_aside, False
            self._line_open = not text.endswith("\n")
            print(gap + text, end="", flush=True)

    def aside(self, text: str) -> None:
        """Shows `text` dimmed, only on a terminal."""
        if self._terminal and (text := printable(text)):
            self._line_open, self._after_aside = not text.endswith("\n"), True
            print(f"\x1b[2m{text}\x1b[22m" if _styled() else text, end="", flush=True)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line_open:
            print(flush=True)


def on_terminal() -> bool:
    """Returns whether a person reads and types: standard input and output are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def printable(text: str) -> str:
    """Returns `text` without control characters except line ends and tabs, because a terminal obeys them."""
    return _CONTROLS.sub("", text)


def _styled() -> bool:
    """Whether escape codes for style may be written to a terminal."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def note(text: str) -> None:
    """Prints a note on standard error; dimmed, and wrapped between words, on a terminal."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        return
    import shutil
    import textwrap

    width = max(1, shutil.get_terminal_size().columns)
    lines = [textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False,
                           replace_whitespace=False) for line in text.split("\n")]
    text = "\n".join(lines)
    print(f"\x1b[2m{text}\x1b[22m" if _styled() else text, file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Returns `text` with line ends and other control characters escaped, because names may come from hostile files."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
