"""Checks of token ids in requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from drut.errors import RequestError


def check_prompt(tokens: Sequence[int], vocab: int) -> None:
    """Raises RequestError if the prompt is empty, not a list of integers, or has an id outside the vocabulary."""
    if not tokens:
        raise RequestError("the prompt is empty")
    try:
        ids = np.asarray(tokens)
    except ValueError:  # lists of different lengths in it
        ids = np.empty((0, 0))
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise RequestError("a prompt of token ids must be a list of integers")
    outside = (ids < 0) | (ids >= vocab)
    if outside.any():
        raise RequestError(f"token id {ids[outside][0]} is outside the vocabulary of {vocab}")


def check_ids(name: str, ids: Iterable[int], vocab: int) -> None:
    """Raises RequestError with `name` if an id is outside the vocabulary."""
    for token in ids:
        if not 0 <= int(token) < vocab:
            raise RequestError(f"{name}: token id {token} is outside the vocabulary of {vocab}")
