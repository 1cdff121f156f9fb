"""Compares a model's likelihood of a text with a reference's: perplexity, divergence, agreement.

A text is split into windows. Each window is a sample, because tokens inside a window depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp

import msgspec
import numpy as np

from drut.engine.llm import LLM
from drut.errors import RequestError
from drut.kernels.ops import F32
from drut.quality.estimate import Estimate, mean

Report = Callable[[int, int], None]


class TextWindow(msgspec.Struct, frozen=True):
    """Means over the tokens of one window, without the first: negative log-likelihoods and divergence in nats."""

    nll: float
    reference_nll: float | None = None
    divergence: float | None = None  # KL(reference || model)
    agreement: float | None = None  # share of tokens whose likeliest id equals the reference's


class Likelihood(msgspec.Struct, frozen=True):
    """The metrics of all windows. `increase` is the model's perplexity divided by the reference's, minus one."""

    windows: int
    tokens: int  # tokens of a window
    perplexity: Estimate
    reference_perplexity: Estimate | None = None
    increase: Estimate | None = None
    divergence: Estimate | None = None
    agreement: Estimate | None = None


def cut(ids: Sequence[int], windows: int, tokens: int) -> list[list[int]]:
    """Returns the first `windows` windows of `tokens` ids. Raises RequestError if the text is too short."""
    if len(ids) < windows * tokens:
        raise RequestError(f"the text has {len(ids)} tokens; {windows} windows of {tokens} need {windows * tokens}")
    return [list(ids[at : at + tokens]) for at in range(0, windows * tokens, tokens)]


def compare(model: LLM, reference: LLM | None, rows: Sequence[list[int]], report: Report | None = None) -> Likelihood:
    """Returns the metrics of `rows`, windows of one length. Raises RequestError if the vocabularies differ in size."""
    windows = []
    for i, row in enumerate(rows):
        windows.append(measure(model.logits(row), None if reference is None else reference.logits(row), row))
        if report:
            report(i + 1, len(rows))
    return summary(windows, len(rows[0]))


def measure(logits: F32, reference: F32 | None, ids: Sequence[int]) -> TextWindow:
    """Returns the metrics of logits (len(ids), vocab), computed in float64."""
    ours, following = _log_softmax(logits[:-1]), np.array(ids[1:])[:, None]
    nll = -float(np.take_along_axis(ours, following, axis=1).mean())
    if reference is None:
        return TextWindow(nll)
    if reference.shape != logits.shape:
        raise RequestError(f"the reference has a vocabulary of {reference.shape[1]}, the model of {logits.shape[1]}")
    theirs = _log_softmax(reference[:-1])
    divergence = float((np.exp(theirs) * (theirs - ours)).sum(axis=1).mean())
    agreement = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean())
    return TextWindow(nll, -float(np.take_along_axis(theirs, following, axis=1).mean()), divergence, agreement)


def summary(windows: Sequence[TextWindow], tokens: int) -> Likelihood:
    """Summarizes windows. Perplexities and their intervals are exp of mean log-likelihoods; windows are compared in
    pairs."""
    perplexity = _exp(mean([w.nll for w in windows]))
    if windows[0].reference_nll is None:
        return Likelihood(len(windows), tokens, perplexity)
    theirs = [w.reference_nll or 0.0 for w in windows]
    return Likelihood(windows=len(windows), tokens=tokens, perplexity=perplexity,
                      reference_perplexity=_exp(mean(theirs)),
                      increase=_exp(mean([w.nll - t for w, t in zip(windows, theirs, strict=True)]), less=1.0),
                      divergence=mean([w.divergence or 0.0 for w in windows]),
                      agreement=mean([w.agreement or 0.0 for w in windows]))


def _log_softmax(logits: F32) -> np.ndarray:
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=1, keepdims=True)))


def _exp(e: Estimate, less: float = 0.0) -> Estimate:
    low, high = (None if x is None else exp(x) - less for x in (e.low, e.high))
    return Estimate(exp(e.value) - less, low, high)
