"""Logprobs of one position, encoded as bytes: millions of objects would make garbage collections stall the server."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from drut.engine.request.output import Logprobs

ITEM = struct.Struct("<iid")


class EncodedScore(NamedTuple):
    """The natural log of a token's probability, and its rank from 1."""

    token: int
    rank: int
    logprob: float


class ScoreRow(bytes):
    """The likeliest tokens, best first, then the token at this position unless it is among them."""

    __slots__ = ()

    @classmethod
    def of(cls, scores: Logprobs) -> ScoreRow:
        return cls(b"".join(ITEM.pack(token, p.rank, p.logprob) for token, p in scores.items()))

    def scores(self) -> Iterator[EncodedScore]:
        return map(EncodedScore._make, ITEM.iter_unpack(self))

    def logprob(self, token: int) -> float:
        """Returns the logprob of `token`, which must be among the tokens."""
        return next(score.logprob for score in self.scores() if score.token == token)
