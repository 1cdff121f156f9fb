"""The terminal as the screen of a chat: rendered answers, asides, questions."""

from __future__ import annotations

import contextlib
import sys
import termios
import time
from collections.abc import Callable, Iterator

from prompt_toolkit import prompt
from prompt_toolkit.shortcuts import clear
from rich.console import Console

from drut.cli.chat.interrupt import Interrupt, deferred
from drut.cli.chat.live import LiveRegion
from drut.cli.chat.markdown import MarkdownSplitter, Piece
from drut.cli.chat.rendering import MarkdownRenderer
from drut.cli.chat.screens import plain_answer
from drut.cli.chat.session import AnswerView
from drut.cli.chat.settings import ChatSettings
from drut.cli.opening import speed
from drut.cli.terminal import note, printable
from drut.engine.request.output import Completion

FRAME_S = 0.05  # minimum seconds between two drawings
SHARE = 0.05  # of the time at most is for drawing: the steps of a local model wait for it
WAITING = "..."  # is shown until the first text


class TerminalScreen:
    """A terminal. Escape codes other than style are written only to one that has them."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self.interactive = not self._console.is_dumb_terminal

    def note(self, text: str) -> None:
        note(text)

    def confirm(self, question: str) -> bool:
        try:
            return prompt(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except (EOFError, KeyboardInterrupt):
            return False

    def clear(self) -> None:
        if self.interactive:
            clear()
            print()  # tmux keeps a copy of a prompt in the first line, each time that it is drawn again

    def answering(self) -> contextlib.AbstractContextManager[Interrupt]:
        return deferred()

    def answer(self, settings: ChatSettings) -> contextlib.AbstractContextManager[AnswerView]:
        if settings.markdown and self.interactive:
            return RenderedAnswer(self._console, reasoning=settings.reasoning)
        return plain_answer(settings)

    def finished(self, answer: Completion) -> None:
        cut = " (truncated at max_tokens or the end of the context)" if answer.finish_reason == "length" else ""
        note(speed(answer) + cut)


class RenderedAnswer:
    """An answer as rendered Markdown, below its reasoning. Finished pieces scroll away; only the last one is live."""

    def __init__(self, console: Console, *, reasoning: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._reasoning, self._clock = console, reasoning, clock
        self._renderer = MarkdownRenderer(console)
        self._region = LiveRegion(console.file)
        self._splitter = MarkdownSplitter()
        self._final: list[str] = []  # lines that are not drawn yet
        self._empty = True  # there is no final line, drawn or not
        self._thought: str | None = None  # the last line of reasoning
        self._next_s = clock() + FRAME_S  # when the next drawing is due

    def content(self, text: str) -> None:
        self._end_reasoning()
        self._keep(self._pieces(self._splitter.push(printable(text)), fold=False))

    def reasoning(self, text: str) -> None:
        if self._reasoning:
            *complete, self._thought = ((self._thought or "") + printable(text)).split("\n")
            self._keep([line for thought in complete for line in self._renderer.dimmed(thought, self._width)])

    def refresh(self) -> None:
        started = self._clock()
        if started >= self._next_s:
            self._draw(self._live() or ([] if self._final else self._renderer.dimmed(WAITING, self._width)))
            ended = self._clock()
            self._next_s = ended + max(FRAME_S, (ended - started) / SHARE)

    def __enter__(self) -> RenderedAnswer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_reasoning()
        self._keep(self._pieces(self._splitter.finish(), fold=False))
        self._draw([])

    @property
    def _width(self) -> int:
        return self._console.width

    def _end_reasoning(self) -> None:
        if self._thought is not None:
            self._keep(self._renderer.dimmed(self._thought, self._width) if self._thought else [])
            self._thought = None

    def _keep(self, lines: list[str]) -> None:
        self._final += lines
        self._empty = self._empty and not lines

    def _live(self) -> list[str]:
        if self._thought:
            return self._renderer.dimmed(self._thought, self._width)
        return self._pieces(self._splitter.preview(), fold=True)

    def _pieces(self, pieces: list[Piece], *, fold: bool) -> list[str]:
        """Renders pieces that follow the final lines."""
        lines: list[str] = []
        for piece in pieces:
            first = self._empty and not lines
            lines += [""] if piece.gap and not first else []
            lines += self._renderer.lines(piece, self._width, fold=fold)
        return lines

    def _draw(self, live: list[str]) -> None:
        width, height = self._console.size
        self._region.draw(self._final, live, width, height)
        self._final = []


@contextlib.contextmanager
def unechoed() -> Iterator[None]:
    """Keys that are typed inside the context, but not at a prompt, are not shown; the next prompt reads them."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    changed = termios.tcgetattr(fd)
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
