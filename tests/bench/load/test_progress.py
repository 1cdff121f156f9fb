"""The line of progress."""

from __future__ import annotations

import io

from rich.console import Console

from drut.bench.load.fleet import LoadProgress
from drut.bench.load.progress import ProgressLine
from drut.bench.load.wire import MeasureWindow

WINDOW = MeasureWindow(2.0, 12.0, 5.0)


def shown(progress: LoadProgress, *, terminal: bool = True, **settings: object) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, _environ={"TERM": "xterm"})
    with ProgressLine(WINDOW, console=console, **settings) as line:  # type: ignore[arg-type]
        line.show(progress)
    return out.getvalue()


def test_progress_on_a_terminal_is_one_line_that_goes() -> None:
    assert "warm-up 1/2 s · 0 done · 3 in flight" in shown(LoadProgress(1.0, 3))
    line = shown(LoadProgress(8.0, 3, 20, 1, 0.0853))
    assert "measuring 6/10 s · 20 done · 2.5/s · TTFT p50 85 ms · 3 in flight · 1 failed\n" in line
    assert "\x1b[1A\x1b[2K" in line
    assert "last requests 2/5 s" in shown(LoadProgress(14.0, 3, 9))
    assert "4 users · 20 of 50 done" in shown(LoadProgress(8.0, 3, 20), requests=50, title="4 users")


def test_nothing_is_shown_without_a_terminal() -> None:
    assert shown(LoadProgress(8.0, 3, 20), terminal=False) == ""
    assert shown(LoadProgress(8.0, 3, 20), quiet=True) == ""
