"""Live progress: one changing line on standard error, if that is a terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from drut.bench.load.fleet import LoadProgress
from drut.bench.load.wire import MeasureWindow

REFRESHES_PER_S = 4


class ProgressLine:
    """Shows progress: `with ProgressLine(window) as line: ... line.show(progress)`. Without a terminal, and if `quiet`,
    it prints nothing.

    `requests` is their total number, if the run ends with it. `title` is shown before the progress.
    """

    def __init__(self, window: MeasureWindow, requests: int | None = None, *, title: str = "",
                 console: Console | None = None, quiet: bool = False) -> None:
        self._window, self._requests, self._title = window, requests, title
        console = console or Console(stderr=True, highlight=False)
        shown = console.is_terminal and not quiet
        self._live = Live(console=console, transient=True, refresh_per_second=REFRESHES_PER_S) if shown else None

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
        if self._live is not None:
            self._live.update(Text(self._line(progress), no_wrap=True, overflow="ellipsis"))

    def _line(self, now: LoadProgress) -> str:
        parts = [self._title, self._phase(now), f"{now.done / now.elapsed_s:.3g}/s" if now.done else "",
                 "" if now.ttft_s is None else f"TTFT p50 {now.ttft_s * 1e3:.0f} ms", f"{now.in_flight} in flight",
                 f"{now.failed} failed" * bool(now.failed)]
        return " · ".join(part for part in parts if part)

    def _phase(self, now: LoadProgress) -> str:
        at, window = max(now.elapsed_s, 0.0), self._window
        if self._requests is not None:
            return f"{now.done} of {self._requests} done"
        if at < window.begin:
            phase = f"warm-up {at:.0f}/{window.begin:g} s"
        elif at < window.end:
            phase = f"measuring {at - window.begin:.0f}/{window.length:g} s"
        else:
            phase = f"last requests {at - window.end:.0f}/{window.grace:g} s"
        return f"{phase} · {now.done} done"
