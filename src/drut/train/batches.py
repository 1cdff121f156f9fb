"""Batches of answers. The ones of a step are a function of seed and step, so a run that continues takes the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drut.formats.planes import F32
from drut.train.answers import AnswerSet

CHUNK = 16  # batches among which sequences are sorted by length, against padding


@dataclass(frozen=True)
class Batch:
    """Padded sequences and their targets. The n supervised rows are those from which an answer token is drawn."""

    tokens: NDArray[np.int64]  # (sequences, length), padded at the end
    rows: NDArray[np.int64]  # (n,), of the flattened (sequences * length)
    top_ids: NDArray[np.int64]  # (n, k)
    top_logprobs: F32  # (n, k)


class Batches:
    """The batches of all epochs. `seed` and the number of the epoch determine its order."""

    def __init__(self, answers: AnswerSet, size: int, seed: int) -> None:
        self._answers, self._size, self._seed = answers, size, seed
        self._lengths = answers.lengths
        self._epoch, self._order = -1, list[NDArray[np.int64]]()

    def __getitem__(self, step: int) -> Batch:
        count = -(-len(self._answers) // self._size)
        epoch, at = divmod(step, count)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(epoch)
        return self._padded(self._order[at])

    def _shuffled(self, epoch: int) -> list[NDArray[np.int64]]:
        dice = np.random.default_rng([self._seed, epoch])
        order = dice.permutation(len(self._answers))
        chunk, batches = self._size * CHUNK, list[NDArray[np.int64]]()
        for start in range(0, len(order), chunk):
            part = order[start : start + chunk]
            part = part[np.argsort(self._lengths[part], kind="stable")]
            batches += [part[i : i + self._size] for i in range(0, len(part), self._size)]
        return [batches[i] for i in dice.permutation(len(batches))]

    def _padded(self, members: NDArray[np.int64]) -> Batch:
        """Returns a batch; the last token of a sequence is only a target, so it has no row."""
        answers = [self._answers[int(i)] for i in members]
        length = max(len(a.tokens) for a in answers) - 1
        tokens = np.zeros((len(answers), length), np.int64)
        for row, a in zip(tokens, answers, strict=True):
            row[: len(a.tokens) - 1] = a.tokens[:-1]
        rows = [i * length + np.arange(a.prompt - 1, len(a.tokens) - 1) for i, a in enumerate(answers)]
        return Batch(tokens, np.concatenate(rows), np.concatenate([a.top_ids for a in answers]).astype(np.int64),
                     np.concatenate([a.top_logprobs for a in answers]))
