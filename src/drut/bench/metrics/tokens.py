"""The number of tokens of a response, and their arrival times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from drut.bench.load.record import LoadRecord

Ints = npt.NDArray[np.int64]
CountTokens = Callable[[str], int | None]
RECUT = 0.1  # share of a response's tokens by which the tokenized text may differ


def output_tokens(record: LoadRecord, count: CountTokens | None = None) -> int | None:
    """Returns the server's number; else the sum of the numbers of its pieces; else the number by the target's
    tokenizer; else None. Never the number of pieces.

    The tokenization of a text need not be the tokens that produced it. If a response was cut at `max_tokens` and its
    text has about that many tokens, it has exactly that many.
    """
    if record.output_tokens is not None:
        return record.output_tokens
    reported = reported_tokens(record)
    if reported is not None:
        return max(1, sum(reported))
    if record.text is None or count is None:
        return None
    counted, most = count(record.text), record.max_tokens
    if counted is not None and record.finish_reason == "length" and abs(counted - most) <= RECUT * most:
        return most
    return counted


def carried(record: LoadRecord, tokens: int) -> Ints:
    """Returns the tokens of each arrival: by the server if it reports them by piece, else the total spread by length of
    text, else evenly.

    They sum to `tokens`; each arrival has at least one if there are enough. Otherwise a token belongs to the arrival
    that completes its text; but the first arrival has one in any case, and the last has one if there are two tokens.
    """
    if not record.arrivals:
        return np.zeros(0, np.int64)
    reported = reported_tokens(record)
    return spread(tokens, record.chars if reported is None else reported)


def reported_tokens(record: LoadRecord) -> list[int] | None:
    """Returns the tokens of each arrival if the server reported all of them; a last arrival without text may be its
    end-of-sequence token."""
    counts = record.reported
    if not counts or min(counts[:-1], default=0) < 0 or (counts[-1] < 0 and (record.chars[-1] or len(counts) == 1)):
        return None
    return [*counts[:-1], counts[-1] if counts[-1] >= 0 else 1]


def spread(tokens: int, weights: Sequence[int]) -> Ints:
    """Returns whole numbers in proportion to `weights` that sum to `tokens`; none is 0 if there are enough tokens."""
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
