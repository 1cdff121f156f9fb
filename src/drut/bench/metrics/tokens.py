"""How many tokens an answer has, and with which arrival each came."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from drut.bench.load.record import Record

Ints = npt.NDArray[np.int64]
CountTokens = Callable[[str], int | None]
RECUT = 0.1  # of an answer's tokens, by which those of its text may differ


def output_tokens(record: Record, count: CountTokens | None = None) -> int | None:
    """The server's word; else the sum of what it told piece by piece; else the text's by the target's tokenizer; else
    unknown. Never the number of pieces.

    Text need not be cut to the tokens again that it was made of. Where an answer was cut at `max_tokens`, and the text
    has about as many, it has just as many."""
    if record.output_tokens is not None:
        return record.output_tokens
    told = told_tokens(record)
    if told is not None:
        return max(1, sum(told))
    if record.text is None or count is None:
        return None
    counted, most = count(record.text), record.max_tokens
    if counted is not None and record.finish_reason == "length" and abs(counted - most) <= RECUT * most:
        return most
    return counted


def carried(record: Record, tokens: int) -> Ints:
    """Tokens of each arrival: as the server told piece by piece, else the whole spread by length of text, else evenly.

    They sum up to `tokens`; each arrival has one at least, if there are so many. Else a token is of the arrival that
    completes its text; but the first has one in any case, and so has the last where there are two tokens.
    """
    if not record.arrivals:
        return np.zeros(0, np.int64)
    told = told_tokens(record)
    return spread(tokens, record.chars if told is None else told)


def told_tokens(record: Record) -> list[int] | None:
    """Of each arrival, where the server told them all; a last one without text may be its end-of-sequence token."""
    told = record.told
    if not told or min(told[:-1], default=0) < 0 or (told[-1] < 0 and (record.chars[-1] or len(told) == 1)):
        return None
    return [*told[:-1], told[-1] if told[-1] >= 0 else 1]


def spread(tokens: int, weights: Sequence[int]) -> Ints:
    """Whole numbers in proportion to `weights`, which sum up to `tokens`; none is 0 where there are enough."""
    m = len(weights)
    if tokens == m:
        return np.ones(m, np.int64)
    parts = np.cumsum(np.asarray(weights, np.float64))
    if parts[-1] <= 0:
        parts = np.arange(1.0, m + 1.0)
    ends = tokens * (parts / parts[-1])
    if tokens < m:
        whole = np.clip(np.floor(ends + 1e-9).astype(np.int64), min(1, tokens), max(1, tokens - 1))
    else:
        order = np.arange(1, m + 1)
        whole = order + np.maximum.accumulate(np.clip(np.rint(ends).astype(np.int64) - order, 0, tokens - m))
    whole[-1] = tokens
    return np.asarray(np.diff(whole, prepend=0), np.int64)
