"""The phase of a batch in which all of its sequences decode, and how many tokens came in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Window(NamedTuple):
    """`tokens` of all sequences in `seconds`, in `steps` different moments."""

    tokens: int
    seconds: float
    steps: int


def full_batch(times: Sequence[Sequence[float]]) -> Window:
    """From the moment the last sequence has its first token to that at which the first one has its last.

    `times` are, of each sequence, the seconds at which its tokens came, rising; tokens of one step have one time.
    Before that phase some sequences still read their prompt, after it the batch is smaller. ValueError where the
    sequences never decode all together.
    """
    start, end = max(t[0] for t in times), min(t[-1] for t in times)
    inside = [moment for sequence in times for moment in sequence if start < moment <= end]
    if not inside:
        raise ValueError("the sequences of the batch never decoded all at once")
    return Window(len(inside), end - start, len(set(inside)))
