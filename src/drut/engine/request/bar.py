"""The progress bar of a call with many prompts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from drut.observe.bars import bar, can_show

if TYPE_CHECKING:
    from drut.engine.output_processor import OutputProcessor


@contextlib.contextmanager
def bar_of(groups: Sequence[Sequence[OutputProcessor]], wanted: bool | None) -> Iterator[Callable[[], None]]:
    """Shows the finished prompts and the output tokens of `groups`, the choices of each prompt. Yields a function to
    call after a step.

    `wanted` None: if there are several prompts. A pipe never gets a bar.
    """
    if not (len(groups) > 1 if wanted is None else wanted) or not can_show():
        yield lambda: None
        return
    from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (MofNCompleteColumn(), TextColumn("{task.fields[tokens]} tokens"), TimeElapsedColumn())
    with bar("prompts", len(groups), *columns, tokens=0) as update:

        def report() -> None:
            tokens = sum(answer.request.num_output_tokens for group in groups for answer in group)
            update(completed=sum(all(answer.done for answer in group) for group in groups), tokens=tokens)

        yield report
