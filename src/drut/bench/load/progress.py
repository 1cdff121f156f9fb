"""Live progress on standard error: one changing line on a terminal, otherwise a line from time to time."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from drut.bench.load.fleet import LoadProgress
from drut.bench.load.wire import MeasureWindow

EVERY_S = 5.0


class ProgressLine:
    """Shows progress: `with ProgressLine(window) as line: ... line.show(progress)`. A quiet one prints nothing."""

    def __init__(self, window: MeasureWindow, console: Console | None = None, quiet: bool = False) -> None:
        self._window, self._quiet = window, quiet
        self._console = console or Console(stderr=True, highlight=False)
        live = self._console.is_terminal and not quiet
        self._live = Live(console=self._console, transient=True, refresh_per_second=4) if live else None
        self._next = 0.0
        self._last = LoadProgress()
        self._pieces_per_s = 0.0

    def __enter__(self) -> ProgressLine:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: LoadProgress) -> None:
        """Shows the progress of the run."""
        past = progress.elapsed_s - self._last.elapsed_s
        if past >= 0.9:
            self._pieces_per_s = (progress.pieces - self._last.pieces) / past
            self._last = progress
        if self._live is not None:
            self._live.update(Text(self._line(progress)))
        elif progress.elapsed_s >= self._next and not self._quiet:
            self._next = progress.elapsed_s + EVERY_S
            print(self._line(progress), file=self._console.file, flush=True)

    def _line(self, progress: LoadProgress) -> str:
        at, window = max(progress.elapsed_s, 0.0), self._window
        if at < window.begin:
            phase = f"warm-up {at:.0f} of {window.begin:g} s"
        elif at < window.end:
            phase = f"measuring {at - window.begin:.0f} of {window.length:g} s"
        else:
            phase = f"waiting for the last requests, {at - window.end:.0f} of {window.grace:g} s"
        return (f"{phase}: {progress.in_flight} in flight, {progress.done} done, {progress.failed} failed, "
                f"{self._pieces_per_s:.0f} pieces/s")
