"""Renders pieces of Markdown to lines for a terminal."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import ClassVar

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, ListElement, ListItem, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from drut.cli.chat.markdown import PARSER, Piece, PieceKind
from drut.cli.terminal import printable

RULE_CELLS = 40  # width of the lines above and below a block of code
COLOURS = "ansi_dark"  # of code: those of the terminal's own palette
# Without backgrounds, so that the lines suit dark and light terminals, and are not longer than their text.
STYLES = {"markdown.h1": "bold underline", "markdown.h2": "bold", "markdown.h3": "bold", "markdown.h4": "bold italic",
          "markdown.code": "cyan", "markdown.code_block": "none", "markdown.block_quote": "italic",
          "markdown.item.bullet": "none", "markdown.item.number": "none", "markdown.hr": "dim",
          "markdown.table.border": "dim", "markdown.table.header": "bold"}


class MarkdownRenderer:
    """Renders to lines of text with escape codes for style only, as the console's terminal can show them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._theme = Theme(STYLES)
        self._markdown = AnswerMarkdown()

    def lines(self, piece: Piece, width: int, *, fold: bool) -> list[str]:
        """Returns a piece as lines of at most `width` cells. Without `fold`, a line of code may be longer, so that it
        can be copied as one."""
        match piece.kind:
            case PieceKind.BLOCK:
                return self._render(self._markdown.of(piece.text), width)
            case PieceKind.CODE:
                return self._render(_highlight(piece), width, whole=not fold)
            case PieceKind.CODE_BEGIN:
                label = f"── {printable(piece.language)} " if piece.language else ""
                return self._render(Text(f"{label:─<{min(RULE_CELLS, width)}}"[:width], style="dim"), width)
            case PieceKind.CODE_END:
                return self._render(Text("─" * min(RULE_CELLS, width), style="dim"), width)

    def dimmed(self, line: str, width: int) -> list[str]:
        """Returns a line of plain text, dimmed and wrapped."""
        return self._render(Text(line, style="dim"), width)

    def _render(self, renderable: RenderableType, width: int, *, whole: bool = False) -> list[str]:
        with self._console.use_theme(self._theme), self._console.capture() as captured:
            self._console.print(SafeLines(renderable), width=width, end="", no_wrap=whole,
                                overflow="ignore" if whole else "fold", crop=False)
        return captured.get().strip("\n").split("\n")


class SafeLines:
    """A renderable without control characters and without spaces at line ends, whatever its text."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in Segment.split_lines(console.render(self._inner, options)):
            yield from _stripped([Segment(printable(s.text).expandtabs(4), s.style) for s in line if not s.control])
            yield Segment.line()


def _stripped(line: list[Segment]) -> Iterable[Segment]:
    while line and not line[-1].text.rstrip():
        line.pop()
    if line:
        line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
    return line


class PlainHeading(Heading):
    """A heading on the left, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class NestedCode(CodeBlock):
    """A block of code inside a list or a quotation."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(str(self.text).rstrip(), self.lexer_name, theme=COLOURS, word_wrap=True,
                     background_color="default")


class ShortRule(MarkdownElement):
    """A line between sections, which does not wrap when the terminal becomes narrower."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("-" * min(RULE_CELLS, options.max_width), style="dim")


class AlignedList(ListElement):
    """A list whose numbers have the same width in all of its pieces."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, item in enumerate(self.items, self.list_start or 0):
            mark = "•" if self.list_type == "bullet_list_open" else f"{number}."
            yield from _with_mark(item, f"{mark:>3} " if mark != "•" else " • ", console, options)


def _with_mark(item: ListItem, mark: str, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
    """Yields the lines of an item, the first one after `mark`, the others below its text."""
    space = " " * len(mark)
    width = max(1, options.max_width - len(mark))
    for line in console.render_lines(item.elements, options.update(width=width), style=item.style):
        yield Segment(mark)
        yield from line
        yield Segment.line()
        mark = space


class AnswerMarkdown(Markdown):
    """Markdown that shows all of its text: line breaks, addresses of links and pictures, and what looks like HTML."""

    elements: ClassVar = {**Markdown.elements, "heading_open": PlainHeading, "fence": NestedCode,
                          "code_block": NestedCode, "hr": ShortRule,
                          "bullet_list_open": AlignedList, "ordered_list_open": AlignedList}

    def __init__(self) -> None:
        super().__init__("", hyperlinks=False)

    def of(self, text: str) -> AnswerMarkdown:
        """Returns a copy with `text`, which takes less time than a new one: that makes a parser."""
        made = copy.copy(self)
        made.parsed = PARSER.parse(text)
        for token in made.parsed:
            if token.children:
                token.children = list(_shown(token.children))
        return made


def _shown(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yields the tokens of a line of text with all of it shown: rich shows neither breaks nor pictures' addresses."""
    for token in tokens:
        if token.type == "softbreak":
            token.type = "hardbreak"
        elif token.type == "image":
            token = Token("text", "", 0, content=f"{token.content} ({token.attrs.get('src', '')})".lstrip())
        if not (token.type in ("link_open", "link_close") and token.markup == "autolink"):
            yield token


def _highlight(piece: Piece) -> Text:
    """Returns a line of code in its colours, which depend on the lines before it alone."""
    code = "\n".join([*piece.context, piece.text])
    if not piece.language:
        return Text(piece.text)
    syntax = Syntax("", piece.language, theme=COLOURS, background_color="default")
    lines = syntax.highlight(code).split("\n", allow_blank=True)
    return lines[len(piece.context)]
