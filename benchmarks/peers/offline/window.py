"""The phase of a batch in which all of its sequences decode, and the number of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Window(NamedTuple):
    """`tokens` of all sequences in `seconds`, at `steps` different times."""

    tokens: int
    seconds: float
    steps: int


def full_batch(times: Sequence[Sequence[float]]) -> Window:
    """Returns the phase from the time the last sequence has its first token to the time the first one has its last.

    `times` are the token times of each sequence in seconds, ascending; tokens of one step have one time. Before that
    phase some sequences still prefill, after it the batch is smaller. Raises ValueError if the sequences never decode
    all together.
    """
    start, end = max(t[0] for t in times), min(t[-1] for t in times)
    inside = [moment for sequence in times for moment in sequence if start < moment <= end]
    if not inside:
        raise ValueError("the sequences of the batch never decoded all at once")
    return Window(len(inside), end - start, len(set(inside)))
