"""The ids whose logits a request changes before sampling: bias, penalties, and ends that may not come yet."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from drut.engine.params import SamplingParams
from drut.kernels.descriptor import Edits


class EditTable:
    """Grows with the output where penalties count it; constant otherwise."""

    def __init__(self, params: SamplingParams, prompt: Iterable[int], ends: Iterable[int]) -> None:
        """`ends`: ids that would end the answer, held back for `min_tokens`."""
        self._params = params
        self._penal = (params.repetition_penalty != 1.0 or params.presence_penalty != 0.0
                       or params.frequency_penalty != 0.0)
        self._bias = {int(i): float(b) for i, b in (params.logit_bias or {}).items()}
        self._ends = tuple(ends) if params.min_tokens > 0 else ()
        self._seen = dict.fromkeys(prompt, 0) if self._penal else {}
        self._kept: Edits | None = None
        self._holds = False  # whether what is kept holds the ends back

    @property
    def follows_output(self) -> bool:
        """Whether the edits depend on the last token, and not only on how many there are."""
        return self._penal

    def push(self, token: int) -> None:
        """Counts a token of the output."""
        if self._penal:
            self._seen[token] = self._seen.get(token, 0) + 1
            self._kept = self._kept and counted(self._kept, token)

    def edits(self, outputs: int) -> Edits | None:
        """What to change for the output token number `outputs` (0 for the first); None if nothing."""
        held = self._ends if outputs < self._params.min_tokens else ()
        if self._kept is None or self._holds != bool(held):
            self._kept, self._holds = self._build(held), bool(held)
        return self._kept if len(self._kept.ids) else None

    def _build(self, held: tuple[int, ...]) -> Edits:
        ids = sorted({*self._bias, *self._seen, *held})
        bias = [-math.inf if i in held else self._bias.get(i, 0.0) for i in ids]
        counts = [self._seen.get(i, 0) for i in ids]
        seen = [1 if i in self._seen else 0 for i in ids]
        return Edits(np.array(ids, np.int32), np.array(bias, np.float32), np.array(counts, np.int32),
                     np.array(seen, np.int32))


def counted(edits: Edits, token: int) -> Edits:
    """`edits` with `token` generated once more; those before stay as they are, since a step may still read them."""
    at = int(np.searchsorted(edits.ids, token))
    if at == len(edits.ids) or edits.ids[at] != token:
        return Edits(*(np.insert(array, at, value) for array, value in zip(edits, (token, 0, 1, 1), strict=True)))
    counts, seen = edits.counts.copy(), edits.seen.copy()
    counts[at] += 1
    seen[at] = 1
    return edits._replace(counts=counts, seen=seen)
