"""Logprobs of one place as bytes: objects in their millions would have the garbage collector hold up the server."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from drut.engine.output import Logprobs

ITEM = struct.Struct("<iid")


class Score(NamedTuple):
    """Of one token: natural log of its probability, and its rank from 1."""

    token: int
    rank: int
    logprob: float


class Row(bytes):
    """The likeliest tokens, best first, then the one that stands there, unless it is among them."""

    __slots__ = ()

    @classmethod
    def of(cls, scores: Logprobs) -> Row:
        return cls(b"".join(ITEM.pack(token, p.rank, p.logprob) for token, p in scores.items()))

    def scores(self) -> Iterator[Score]:
        return map(Score._make, ITEM.iter_unpack(self))

    def logprob(self, token: int) -> float:
        """Of `token`, which is among them."""
        return next(score.logprob for score in self.scores() if score.token == token)
