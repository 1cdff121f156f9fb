"""Compares an engine's scores of given texts with a reference: perplexity, and divergence of the next token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from drut.bench.workloads.packed import read_jsonl

TOP = 5  # likeliest tokens of a position: the maximum of OpenAI's completions
MIN_ALIGNED = 0.9  # share of the tokens of two scored texts that must be equal for a comparison
_MIN = 1e-6  # probability of all tokens that are in no list


class ScoredText(msgspec.Struct, frozen=True):
    """The scores of one text: its tokens except the first, the logprob of each, and the likeliest tokens of its
    position with theirs."""

    tokens: list[str]
    logprobs: list[float]
    top: list[dict[str, float]]


class ServedLikelihood(msgspec.Struct, frozen=True):
    """The scores of all texts. `increase`: of perplexity over the reference's, as a share. `divergence`: KL(reference
    || own) of the next token, nats per token, over the likeliest tokens and all others as one, so it is a lower bound.
    None: no comparison is possible."""

    perplexity: float
    increase: float | None = None
    divergence: float | None = None
    tokens: int = 0


def texts(count: int) -> list[str]:
    """Returns English prose: questions of GSM8K, from the end of the data set, in plain ASCII."""
    rows: list[str] = read_jsonl("gsm8k")
    return [row for row in reversed(rows) if row.isascii()][:count]


def likelihood(own: Sequence[ScoredText], reference: Sequence[ScoredText]) -> ServedLikelihood | None:
    """Computes the result; None if `own` is empty. The texts of both are the same, in the same order; the reference may
    have more."""
    logprobs = [value for text in own for value in text.logprobs]
    if not logprobs:
        return None
    perplexity = _exp(-fmean(logprobs))
    losses, divergences, longest = [], [], 0
    for mine, theirs in zip(own, reference, strict=False):
        same = _aligned(mine.tokens, theirs.tokens)
        longest += max(len(mine.tokens), len(theirs.tokens))
        for k in range(-same, 0):
            losses.append(theirs.logprobs[k] - mine.logprobs[k])
            if mine.top[k] and theirs.top[k]:
                divergences.append(_divergence(mine.top[k], theirs.top[k]))
    if len(own) > len(reference) or len(losses) < MIN_ALIGNED * longest or not losses:
        return ServedLikelihood(perplexity, tokens=len(logprobs))
    return ServedLikelihood(perplexity, _exp(fmean(losses)) - 1, fmean(divergences) if divergences else None,
                            len(logprobs))


def _aligned(own: Sequence[str], reference: Sequence[str]) -> int:
    """Returns the number of equal tokens at the end: only some engines begin with a token of their own."""
    pairs = zip(reversed(own), reversed(reference), strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(own), len(reference)))


def _divergence(own: dict[str, float], reference: dict[str, float]) -> float:
    """Computes the divergence. A token that `own` does not list is assumed to be at most as likely as the least likely
    listed one."""
    floor = min(own.values())
    p = {token: math.exp(min(value, 0.0)) for token, value in reference.items()}
    q = {token: math.exp(min(own.get(token, floor), 0.0)) for token in p}
    rest_p, rest_q = max(1 - sum(p.values()), _MIN), max(1 - sum(q.values()), _MIN)
    parts = (share * math.log(share / max(q[token], _MIN)) for token, share in p.items() if share > 0)
    return max(sum(parts) + rest_p * math.log(rest_p / rest_q), 0.0)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
