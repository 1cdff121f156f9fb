"""Logits processors: the changes that a request makes to logits before sampling, by `logit_bias`, penalties and
`min_tokens`. The kernels apply them (docs/numerics.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from drut.engine.request.params import FilledParams
from drut.kernels.descriptor import Edits


class LogitsProcessors:
    """The logits processors of one request, as a table of ids. It grows with the output only if there are penalties."""

    def __init__(self, params: FilledParams, prompt: Iterable[int], ends: Iterable[int]) -> None:
        """`ends`: ids that end the output, forbidden before `min_tokens`."""
        self._params = params
        self._has_penalties = (params.repetition_penalty != 1.0 or params.presence_penalty != 0.0
                       or params.frequency_penalty != 0.0)
        self._bias = {int(i): float(b) for i, b in (params.logit_bias or {}).items()}
        self._ends = tuple(ends) if params.min_tokens > 0 else ()
        self._seen = dict.fromkeys(prompt, 0) if self._has_penalties else {}
        self._cached: Edits | None = None
        self._cached_holds_ends = False  # whether `_cached` forbids `ends`

    @property
    def depends_on_last_token(self) -> bool:
        """True if the edits depend on the last token, and not only on the number of tokens."""
        return self._has_penalties

    def push(self, token: int) -> None:
        """Counts an output token for the penalties."""
        if self._has_penalties:
            self._seen[token] = self._seen.get(token, 0) + 1
            self._cached = self._cached and counted(self._cached, token)

    def edits(self, output_index: int) -> Edits | None:
        """Returns the changes for the output token at `output_index`; None if there are none."""
        held = self._held(output_index)
        if self._cached is None or self._cached_holds_ends != bool(held):
            self._cached, self._cached_holds_ends = self._build(held), bool(held)
        return self._cached if len(self._cached.ids) else None

    def along(self, first: int, drafts: Sequence[int]) -> list[Edits | None]:
        """Returns the changes for the output token at index `first`, and for the token after each of `drafts`."""
        found, table, holds_ends = [self.edits(first)], self._cached, self._cached_holds_ends
        assert table is not None
        for i, draft in enumerate(drafts, 1):
            held = self._held(first + i)
            if bool(held) != holds_ends:
                table, holds_ends = self._build(held, drafts[:i]), bool(held)
            elif self._has_penalties:
                table = counted(table, draft)
            found.append(table if len(table.ids) else None)
        return found

    def _held(self, output_index: int) -> tuple[int, ...]:
        return self._ends if output_index < self._params.min_tokens else ()

    def _build(self, held: tuple[int, ...], drafts: Sequence[int] = ()) -> Edits:
        """Returns the table after the output so far and `drafts`."""
        times = self._seen
        if self._has_penalties and drafts:
            times = dict(times)
            for draft in drafts:
                times[draft] = times.get(draft, 0) + 1
        ids = sorted({*self._bias, *times, *held})
        bias = [-math.inf if i in held else self._bias.get(i, 0.0) for i in ids]
        counts = [times.get(i, 0) for i in ids]
        seen = [1 if i in times else 0 for i in ids]
        return Edits(np.array(ids, np.int32), np.array(bias, np.float32), np.array(counts, np.int32),
                     np.array(seen, np.int32))


def counted(edits: Edits, token: int) -> Edits:
    """Returns `edits` after one more output `token`. Copies: a step in flight may still read the old arrays."""
    at = int(np.searchsorted(edits.ids, token))
    if at == len(edits.ids) or edits.ids[at] != token:
        return Edits(*(np.insert(array, at, value) for array, value in zip(edits, (token, 0, 1, 1), strict=True)))
    counts, seen = edits.counts.copy(), edits.seen.copy()
    counts[at] += 1
    seen[at] = 1
    return edits._replace(counts=counts, seen=seen)
