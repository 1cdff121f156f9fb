"""Splits a stream of Markdown into pieces that are final, as soon as they are.

A piece is a block, an item of a list, or a line of code, so that a long answer need not be rendered again as it grows.
The pieces do not depend on how the stream is cut into chunks: only complete lines decide.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from markdown_it import MarkdownIt
from markdown_it.token import Token

CONTEXT_LINES = 20  # lines of code before a line that decide its colours

# Text in angle brackets is text, and a definition of a link too: neither may vanish from an answer.
PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")


class PieceKind(Enum):
    """What a piece is."""

    BLOCK = auto()  # Markdown of one block, or of one item of a list
    CODE_BEGIN = auto()
    CODE = auto()  # one line
    CODE_END = auto()


@dataclass(frozen=True)
class Piece:
    """A part of an answer. `gap`: an empty line precedes it, unless it is the first."""

    kind: PieceKind
    text: str = ""
    gap: bool = False
    language: str = ""
    context: tuple[str, ...] = ()  # of a line of code: the lines before it


@dataclass
class Fence:
    """An open block of code: the marks that opened it, their indentation, and its last lines."""

    mark: str
    indent: int
    language: str
    lines: list[str] = field(default_factory=list)

    def closed_by(self, line: str) -> bool:
        mark = re.escape(self.mark[0])
        return re.fullmatch(rf" {{0,3}}{mark}{{{len(self.mark)},}}\s*", line) is not None

    def piece(self, line: str) -> Piece:
        """Adds a line of code."""
        line = line[min(self.indent, len(line) - len(line.lstrip(" "))):].expandtabs(4)
        piece = Piece(PieceKind.CODE, line, language=self.language, context=tuple(self.lines))
        self.lines = [*self.lines, line][-CONTEXT_LINES:]
        return piece


@dataclass
class MarkdownSplitter:
    """Takes text in chunks; returns each piece once."""

    _partial: str = ""  # the last line, not complete yet
    _lines: list[str] = field(default_factory=list)  # complete lines from the start of the last piece
    _gap: bool = True  # of the last piece
    _fence: Fence | None = None

    def push(self, text: str) -> list[Piece]:
        """Returns the pieces that `text` completes."""
        *complete, self._partial = (self._partial + text).split("\n")
        return [piece for line in complete for piece in self._line(line)]

    def finish(self) -> list[Piece]:
        """Returns the last pieces, at the end of the answer."""
        pieces = list(self._line(self._partial)) if self._partial else []
        if self._fence is not None:
            return [*pieces, Piece(PieceKind.CODE_END)]
        return [*pieces, *self._cut(piece_starts(self._lines), len(self._lines))]

    def preview(self) -> list[Piece]:
        """Returns the pieces that `finish` would return."""
        return copy.deepcopy(self).finish()

    def _line(self, line: str) -> Iterator[Piece]:
        """Adds a complete line. Yields the pieces before the last one, which may still grow."""
        if self._fence is not None:
            if self._fence.closed_by(line):
                self._fence = None
                yield Piece(PieceKind.CODE_END)
            else:
                yield self._fence.piece(line)
            return
        self._lines.append(line)
        starts = piece_starts(self._lines)
        if not starts:  # no text yet
            self._lines.clear()
            return
        yield from self._cut(starts, starts[-1].line)
        fence = starts[-1].fence
        if fence is not None:
            language = (fence.info.split() or [""])[0]
            self._fence = Fence(fence.markup, len(line) - len(line.lstrip(" ")), language)
            self._lines.clear()
            self._gap = True
            yield Piece(PieceKind.CODE_BEGIN, gap=True, language=language)

    def _cut(self, starts: list[PieceStart], end: int) -> Iterator[Piece]:
        """Yields the pieces before line `end`, and removes their lines."""
        lines = self._lines
        gaps = [self._gap, *(s.new_block or not lines[s.line - 1].strip() for s in starts[1:]), True]
        stops = [*(s.line for s in starts[1:]), len(lines)]
        done = sum(start.line < end for start in starts)
        for start, stop, gap in list(zip(starts, stops, gaps, strict=False))[:done]:
            yield Piece(PieceKind.BLOCK, "\n".join(lines[start.line:stop]).rstrip(), gap)
        self._lines, self._gap = lines[end:], gaps[done]


@dataclass(frozen=True)
class PieceStart:
    """Where a piece starts: its first line, whether a block starts there, and the token of a block of code."""

    line: int
    new_block: bool
    fence: Token | None


def piece_starts(lines: list[str]) -> list[PieceStart]:
    """Returns the starts of the blocks in `lines`, and of the items of a list after its first."""
    starts = []
    items = 0
    for token in PARSER.parse("\n".join(lines)):
        if token.map is None or token.nesting < 0:
            continue
        if token.level == 0:
            items = 0
            starts.append(PieceStart(token.map[0], True, token if token.type == "fence" else None))
        elif token.level == 1 and token.type == "list_item_open":
            items += 1
            if items > 1:
                starts.append(PieceStart(token.map[0], False, None))
    return starts
