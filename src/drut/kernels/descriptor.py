"""The step descriptor: one flat int32 buffer with all inputs of a step. No pointers; the same for every backend.

Layout, version 5 (`Step` in csrc/base/abi.h reads it): a header of 12 words (version, rows, sequences, samples, the
six capacities, KV groups, edits), and arrays of fixed capacity in the order of the fields below; of `slot` and `table`
one a KV group with pages, side by side. Floats are their bit patterns. At the end come the `slot_of` arrays of the
groups that keep a slot for each sequence, wherever its rows are: a slot a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from drut.kernels.cost import StepShape
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.ops import F32

VERSION = 5
HEADER_FIELDS = ("version", "rows", "seqs", "samples", "cap_rows", "cap_seqs", "cap_samples", "cap_blocks", "cap_edits",
                 "cap_masks", "groups", "edits")
HEADER = len(HEADER_FIELDS)
EDITS_USED = HEADER_FIELDS.index("edits")
RELAY = -1  # a row's token: take it from the sequence's relay slot
HOLE = -1  # an entry of a block table for a page that is before the sliding window
MAX_TOP_LOGPROBS = 20

ROW_FIELDS = ("seq", "position", "slot", "token")
SEQ_FIELDS = ("first_row", "row_count", "length", "table", "relay_slot")
BY_GROUP = ("slot", "table")
SAMPLE_FIELDS = ("sample_row", "seed_lo", "seed_hi", "choice", "top_k", "target", "top_logprobs", "edit_first",
                 "edit_count", "mask", "relay", "temperature", "top_p", "min_p", "repetition", "presence", "frequency")
EDIT_FIELDS = ("edit_id", "edit_bias", "edit_count_out", "edit_seen")
FLOAT_FIELDS = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency", "edit_bias")


class SampleSettings(Protocol):
    """The sampling settings of one token."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def min_p(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def top_logprobs(self) -> int:
        """Number of most likely ids to report in addition to the token, at most MAX_TOP_LOGPROBS; -1 for no logprob."""


class Edits(NamedTuple):
    """The input of the logits processors of a sample: ids, each once, with bias and counts (docs/numerics.md)."""

    ids: NDArray[np.int32]
    bias: F32  # added; -inf forbids the id
    counts: NDArray[np.int32]  # times the id was generated
    seen: NDArray[np.int32]  # 1 where the id is in the prompt or was generated


class StepDescriptor:
    """A reusable buffer, filled by `clear`, then `add_sequence` and `add_sample`. It must not change while a step reads
    it."""

    def __init__(self, rows: int, seqs: int, samples: int, blocks: int, edits: int = 0, masks: int = 0,
                 groups: int = 1, slot_groups: int = 0) -> None:
        """Capacities: rows, sequences, samples, block-table entries of all `groups` together, edits and words of masks
        of the largest step. `slot_groups`: those behind them, that keep a slot for each sequence."""
        capacity = [(ROW_FIELDS, rows), (SEQ_FIELDS, seqs), (SAMPLE_FIELDS, samples), (("blocks",), blocks),
                    (EDIT_FIELDS, edits), (("masks",), masks), (("slot_of",), slot_groups * seqs)]
        lengths = {name: room * (groups if name in BY_GROUP else 1) for names, room in capacity for name in names}
        words = HEADER + sum(lengths.values())
        self.buffer: NDArray[np.int32] = np.zeros(words, np.int32)
        self.address = self.buffer.ctypes.data  # for native code; NumPy takes a microsecond to give it
        self.buffer[0] = VERSION
        self.buffer[4:EDITS_USED] = rows, seqs, samples, blocks, edits, masks, groups
        self._view: dict[str, NDArray[np.int32]] = {}
        at = HEADER
        for name, room in lengths.items():
            self._view[name] = self.buffer[at : at + room]
            at += room
        self._slots, self._tables = ([self._view[name][i * room : (i + 1) * room] for i in range(groups)]
                                     for name, room in zip(BY_GROUP, (rows, seqs), strict=True))
        self._slot_of = [self._view["slot_of"][i * seqs : (i + 1) * seqs] for i in range(slot_groups)]
        # The fields of a sample side by side, (field, sample): integers, then floats.
        first = HEADER + sum(lengths[name] for name in (*ROW_FIELDS, *SEQ_FIELDS))
        fields = self.buffer[first : first + len(SAMPLE_FIELDS) * samples].reshape(len(SAMPLE_FIELDS), samples)
        split = SAMPLE_FIELDS.index(FLOAT_FIELDS[0])
        self._integers, self._floats = fields[:split], fields[split:].view(np.float32)
        self._rows = self._seqs = self._samples = self._edits = 0  # in use; the header has the same
        self.room = blocks, edits, masks
        self._blocks_used = self._masks_used = 0
        self._relayed: set[int] = set()  # slots that a sample writes

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns the whole array of a field; float fields as float32."""
        view = self._view[name]
        return view.view(np.float32) if name in FLOAT_FIELDS else view

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def seqs(self) -> int:
        return self._seqs

    @property
    def samples(self) -> int:
        return self._samples

    @property
    def groups(self) -> int:
        """The number of KV groups with pages."""
        return len(self._tables)

    def slots(self, group: int) -> NDArray[np.int32]:
        """Returns the slot of each row in the pages of `group`, where its keys and values are stored, (rows,)."""
        return self._slots[group][: self.rows]

    def tables(self, group: int) -> NDArray[np.int32]:
        """Returns the offset in `blocks` of each sequence's block table of `group`, (seqs,)."""
        return self._tables[group][: self.seqs]

    def slot_of(self, group: int) -> NDArray[np.int32]:
        """Returns the slot of each sequence in `group`, a group without pages, (seqs,)."""
        return self._slot_of[group - len(self._tables)][: self._seqs]

    def clear(self) -> None:
        self._rows = self._seqs = self._samples = self._edits = 0
        self.buffer[1:4] = 0
        self.buffer[EDITS_USED] = 0
        self._blocks_used = self._masks_used = 0
        self._relayed.clear()

    def add_sequence(self, tokens: Sequence[int], start: int, pages: Sequence[int], relay_slot: int,
                     ahead: int = 0, others: Sequence[Sequence[int]] = ()) -> int:
        """Adds rows for `tokens` at positions from `start` on, and returns the first row. `pages`: of the first KV
        group;
        `others`: of the other groups, the groups with slots last.

        Only the pages up to the last row's position plus `ahead` positions enter the block tables.
        """
        v, row, seq, count = self._view, self._rows, self._seqs, len(tokens)
        end = start + count
        used = -(-(end + ahead) // PAGE_TOKENS)
        maps, paged = (pages, *others), len(self._tables)
        if len(maps) != paged + len(self._slot_of):
            raise ValueError(f"{len(maps)} block tables for {paged + len(self._slot_of)} KV groups")
        blocks, blocks_end = v["blocks"], self._blocks_used + used * paged
        if row + count > len(v["seq"]) or seq >= len(v["first_row"]) or blocks_end > len(blocks):
            raise ValueError("the step descriptor is full")
        for mapped in maps[:paged]:
            if len(mapped) < used:
                raise ValueError(f"{len(mapped)} pages do not hold {end + ahead} tokens")
        for mapped in maps[paged:]:
            if len(mapped) != 1:
                raise ValueError(f"{len(mapped)} slots for a sequence that has one")
        # A single row is written without slices: they take longer than all else here.
        rows: slice | int = slice(row, row + count) if count > 1 else row
        v["seq"][rows] = seq
        v["token"][rows] = tokens if count > 1 else tokens[0]
        v["position"][rows] = position = np.arange(start, end, dtype=np.int32) if count > 1 else start
        for group, mapped in enumerate(maps):
            if group >= paged:
                self._slot_of[group - paged][seq] = mapped[0]
                continue
            slots = self._slots[group]
            table = self._tables[group][seq] = self._blocks_used
            self._blocks_used += used
            blocks[table : table + used] = np.asarray(mapped, np.int32)[:used]  # one copy of an int32 array
            page = blocks[table + position // PAGE_TOKENS] if count > 1 else mapped[start // PAGE_TOKENS]
            slots[rows] = page * PAGE_TOKENS + position % PAGE_TOKENS
        v["first_row"][seq] = row
        v["row_count"][seq] = count
        v["length"][seq] = end
        v["relay_slot"][seq] = relay_slot
        self.buffer[1] = self._rows = row + count
        self.buffer[2] = self._seqs = seq + 1
        return row

    def add_sample(self, row: int, settings: SampleSettings, seed: int = 0, choice: int = 0, *, target: int = -1,
                   edits: Edits | None = None, mask: int = -1, relay: bool = False) -> int:
        """Adds a sample: a token drawn from the logits of `row`. Returns the index of the sample.

        With `target` >= 0 nothing is drawn: that id is the token, for its logprobs. `mask`: the return value of
        `add_mask` if not all ids are allowed. `relay`: the token is also written to the relay slot of the sequence, for
        a row of a later step; only one sample may write a slot. Raises ValueError if the descriptor is full or another
        sample writes the slot.
        """
        i, wanted = self._samples, settings.top_logprobs
        if i >= self._integers.shape[1]:
            raise ValueError("the step descriptor is full")
        if wanted > MAX_TOP_LOGPROBS:
            raise ValueError(f"{wanted} top logprobs are more than {MAX_TOP_LOGPROBS}")
        slot = self._relay_of(row) if relay else -1
        first, count = self._edits, 0
        if edits is not None:
            count = self._add_edits(first, edits)
        self._integers[:, i] = (row, _signed(seed), _signed(seed >> 32), choice, settings.top_k, target, wanted, first,
                                count, mask, slot)
        self._floats[:, i] = (settings.temperature, settings.top_p, settings.min_p, settings.repetition_penalty,
                              settings.presence_penalty, settings.frequency_penalty)
        self.buffer[3] = self._samples = i + 1
        return i

    def _relay_of(self, row: int) -> int:
        """Returns the relay slot of a row's sequence. Raises ValueError if another sample of the step writes it."""
        slot: int = self._view["relay_slot"].item(self._view["seq"].item(row))
        if slot in self._relayed:
            raise ValueError(f"two samples of a step write relay slot {slot}")
        self._relayed.add(slot)
        return slot

    def add_mask(self, vocab: int) -> int:
        """Allocates a grammar mask and returns its offset. The caller fills `mask(offset, vocab)` before the step
        samples."""
        first = self._masks_used
        if first + mask_words(vocab) > len(self._view["masks"]):
            raise ValueError("the step descriptor is full")
        self._masks_used = first + mask_words(vocab)
        return first

    def mask(self, first: int, vocab: int) -> NDArray[np.int32]:
        """Returns the words of one mask, (mask_words(vocab),): bit i mod 32 of word i // 32 is 1 if id i is allowed."""
        return self._view["masks"][first : first + mask_words(vocab)]

    def _add_edits(self, first: int, edits: Edits) -> int:
        v, count = self._view, len(edits.ids)
        place = slice(first, first + count)
        if place.stop > len(v["edit_id"]):
            raise ValueError("the step descriptor is full")
        v["edit_id"][place] = edits.ids
        v["edit_bias"].view(np.float32)[place] = edits.bias
        v["edit_count_out"][place] = edits.counts
        v["edit_seen"][place] = edits.seen
        self.buffer[EDITS_USED] = self._edits = place.stop
        return count

    def advance(self) -> None:
        """Makes this the next step of sequences that decode: every row moves on to the next position, and takes its
        token from the relay, where its sample wrote it. The block tables must reach so far (`ahead`)."""
        v, rows = self._view, slice(self.rows)
        seq = v["seq"][rows]
        position = v["position"][rows] + 1
        v["position"][rows] = position
        for slots, tables in zip(self._slots, self._tables, strict=True):
            slots[rows] = v["blocks"][tables[seq] + position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
        v["token"][rows] = RELAY
        v["length"][seq] = position + 1

    def shape(self) -> StepShape:
        """Returns the shape of the step, for its cost."""
        counts, lengths = (self._view[name][: self.seqs].tolist() for name in ("row_count", "length"))
        return StepShape.over(list(zip(counts, lengths, strict=True)), self.samples)


def mask_words(vocab: int) -> int:
    """Returns the number of int32 words with a bit for every id."""
    return -(-vocab // 32)


def _signed(word: int) -> int:
    """Returns the low 32 bits as int32."""
    return ((word & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
