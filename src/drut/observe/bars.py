"""Progress bars: on a terminal and in notebooks, never on a pipe."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn


def in_notebook() -> bool:
    """Returns whether this program is a Jupyter kernel."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    return type(running).__name__ == "ZMQInteractiveShell"


def can_show() -> bool:
    """Returns whether someone would see a bar on standard error."""
    return sys.stderr.isatty() or in_notebook()


@contextlib.contextmanager
def bar(title: str, total: int | None, *columns: ProgressColumn, **values: Any) -> Iterator[Callable[..., None]]:
    """Shows a live bar on standard error, or in the cell of a notebook. Yields a function that sets `completed`
    and the `values` of columns."""
    from rich.progress import BarColumn, Progress, TextColumn

    named = TextColumn("{task.description}", markup=False)
    with Progress(named, BarColumn(), *columns, console=_console(), redirect_stdout=False) as shown:
        task = shown.add_task(title, total=total, **values)
        yield lambda **changed: shown.update(task, **changed)


def _console() -> Console:
    """Returns where to draw. A notebook without ipywidgets gets a terminal's escape codes, which it understands."""
    from rich.console import Console

    if not in_notebook():
        return Console(stderr=True)
    if importlib.util.find_spec("ipywidgets") is not None:
        return Console(force_jupyter=True)
    return Console(stderr=True, force_jupyter=False, force_terminal=True, width=100)
