"""The step descriptor: one flat int32 buffer that says what a step computes. No pointers; the same on every backend.

Layout, version 1 (the C side is `Step` in csrc/abi.h): a header of 8 words (version, rows, sequences, samples, then
the four capacities), and arrays of fixed capacity in the order of the fields below. Floats are their bit patterns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.ops import StepShape

VERSION = 1
HEADER = 8
RELAY = -1  # a row's token: take it from the sequence's relay slot

ROW_FIELDS = ("seq", "position", "slot", "token", "flags", "adapter")
SEQ_FIELDS = ("first_row", "row_count", "length", "table", "relay_slot")
SAMPLE_FIELDS = ("sample_row", "seed_lo", "seed_hi", "choice", "top_k", "temperature", "top_p", "min_p")
FLOAT_FIELDS = ("temperature", "top_p", "min_p")


class SampleSettings(Protocol):
    """How one token is drawn."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def min_p(self) -> float: ...


class StepDescriptor:
    """A reusable buffer. `clear`, then `add_sequence` and `add_sample` fill it in order."""

    def __init__(self, rows: int, seqs: int, samples: int, blocks: int) -> None:
        """Capacities: rows, sequences, samples and block-table entries of the largest step."""
        capacity = [(ROW_FIELDS, rows), (SEQ_FIELDS, seqs), (SAMPLE_FIELDS, samples), (("blocks",), blocks)]
        words = HEADER + sum(len(names) * room for names, room in capacity)
        self.buffer: NDArray[np.int32] = np.zeros(words, np.int32)
        self.buffer[0] = VERSION
        self.buffer[4:HEADER] = rows, seqs, samples, blocks
        self._view: dict[str, NDArray[np.int32]] = {}
        at = HEADER
        for names, room in capacity:
            for name in names:
                self._view[name] = self.buffer[at : at + room]
                at += room
        self._blocks_used = 0

    def __getitem__(self, name: str) -> NDArray[np.int32]:
        """One array, whole; float fields as float32."""
        view = self._view[name]
        return view.view(np.float32) if name in FLOAT_FIELDS else view  # type: ignore[return-value]

    @property
    def rows(self) -> int:
        return int(self.buffer[1])

    @property
    def seqs(self) -> int:
        return int(self.buffer[2])

    @property
    def samples(self) -> int:
        return int(self.buffer[3])

    def clear(self) -> None:
        self.buffer[1:4] = 0
        self._blocks_used = 0

    def add_sequence(self, tokens: Sequence[int], start: int, pages: Sequence[int], relay_slot: int) -> int:
        """Rows for `tokens` at positions from `start` on, over the sequence's `pages`; returns the first row.

        Only the pages up to the last row's position enter the block table.
        """
        v, row, seq, count = self._view, self.rows, self.seqs, len(tokens)
        end = start + count
        used = -(-end // PAGE_TOKENS)
        table = self._blocks_used
        if row + count > len(v["seq"]) or seq >= len(v["first_row"]) or table + used > len(v["blocks"]):
            raise ValueError("the step descriptor is full")
        if len(pages) < used:
            raise ValueError(f"{len(pages)} pages do not hold {end} tokens")
        v["blocks"][table : table + used] = pages[:used]
        self._blocks_used += used
        rows = slice(row, row + count)
        v["seq"][rows] = seq
        v["token"][rows] = tokens
        if count == 1:
            v["position"][row] = start
            v["slot"][row] = pages[start // PAGE_TOKENS] * PAGE_TOKENS + start % PAGE_TOKENS
        else:
            position = np.arange(start, end, dtype=np.int32)
            v["position"][rows] = position
            v["slot"][rows] = v["blocks"][table + position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
        v["first_row"][seq] = row
        v["row_count"][seq] = count
        v["length"][seq] = end
        v["table"][seq] = table
        v["relay_slot"][seq] = relay_slot
        self.buffer[1] = row + count
        self.buffer[2] = seq + 1
        return row

    def add_sample(self, row: int, settings: SampleSettings, seed: int = 0, choice: int = 0) -> int:
        """Asks for the logits of `row` and a token drawn from them; returns the sample's index."""
        v, i = self._view, self.samples
        if i >= len(v["sample_row"]):
            raise ValueError("the step descriptor is full")
        v["sample_row"][i] = row
        v["seed_lo"][i] = np.uint32(seed & 0xFFFFFFFF).view(np.int32)
        v["seed_hi"][i] = np.uint32(seed >> 32 & 0xFFFFFFFF).view(np.int32)
        v["choice"][i] = choice
        v["top_k"][i] = settings.top_k
        v["temperature"].view(np.float32)[i] = settings.temperature
        v["top_p"].view(np.float32)[i] = settings.top_p
        v["min_p"].view(np.float32)[i] = settings.min_p
        self.buffer[3] = i + 1
        return i

    def shape(self) -> StepShape:
        """What the step costs depend on."""
        positions = self._view["position"][: self.rows]
        return StepShape(self.rows, self.samples, int(self._view["length"][: self.seqs].sum()),
                         int(positions.sum()) + self.rows)
