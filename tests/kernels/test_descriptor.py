"""The step descriptor: what it holds, when it is full, and that a backend reads it where it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.cache.groups import entries
from drut.kernels.cost import StepShape
from drut.kernels.descriptor import (
    EDIT_FIELDS,
    FLOAT_FIELDS,
    HEADER,
    HOLE,
    ROW_FIELDS,
    SAMPLE_FIELDS,
    SEQ_FIELDS,
    VERSION,
    StepDescriptor,
)
from drut.kernels.ops import Sample
from tests.kernels.conftest import Native
from tests.kernels.rig import Draw, Ran, assert_same_bits, floats, head_plan


def test_the_header_names_version_and_capacities() -> None:
    d = StepDescriptor(rows=5, seqs=4, samples=3, blocks=7, edits=2, masks=6)
    assert d.buffer.dtype == np.int32
    assert d.buffer[:HEADER].tolist() == [VERSION, 0, 0, 0, 5, 4, 3, 7, 2, 6, 1, 0]
    words = 5 * len(ROW_FIELDS) + 4 * len(SEQ_FIELDS) + 3 * len(SAMPLE_FIELDS) + 7 + 2 * len(EDIT_FIELDS) + 6
    assert d.buffer.size == HEADER + words


def test_arrays_lie_in_the_order_of_the_fields() -> None:
    d = StepDescriptor(rows=5, seqs=4, samples=3, blocks=7, edits=2, masks=6)
    fields = [*ROW_FIELDS, *SEQ_FIELDS, *SAMPLE_FIELDS, "blocks", *EDIT_FIELDS, "masks"]
    for i, name in enumerate(fields):
        d[name][:] = i
        assert d[name].dtype == (np.float32 if name in FLOAT_FIELDS else np.int32)
    body = d.buffer[HEADER:]
    lengths = [5] * len(ROW_FIELDS) + [4] * len(SEQ_FIELDS) + [3] * len(SAMPLE_FIELDS) + [7] + [2] * len(EDIT_FIELDS)
    lengths.append(6)
    expected = [np.float32(i).view(np.int32) if name in FLOAT_FIELDS else i for i, name in enumerate(fields)]
    assert body.tolist() == np.repeat(expected, lengths).tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 70), st.integers(1, 40)), min_size=1, max_size=4), st.randoms())
def test_rows_point_to_their_slots(parts: list[tuple[int, int]], random) -> None:
    """Of (start, count) sequences: each row's slot lies in the page its position falls in."""
    d = StepDescriptor(160, 4, 4, 40)
    row, kv_tokens, row_tokens = 0, 0, 0
    for i, (start, count) in enumerate(parts):
        pages = random.sample(range(1000), 8)
        assert d.add_sequence(range(i, i + count), start, pages, 50 + i) == row
        for j in range(count):
            position = start + j
            assert d["position"][row + j] == position
            assert d["slot"][row + j] == pages[position // 16] * 16 + position % 16
            assert (d["seq"][row + j], d["token"][row + j]) == (i, i + j)
        table, used = d["table"][i], -(-(start + count) // 16)
        assert d["blocks"][table : table + used].tolist() == pages[:used]
        of_sequence = [d[name][i] for name in ("first_row", "row_count", "length", "relay_slot")]
        assert of_sequence == [row, count, start + count, 50 + i]
        row, kv_tokens = row + count, kv_tokens + start + count
        row_tokens += sum(range(start + 1, start + count + 1))
    assert (d.rows, d.seqs) == (row, len(parts))
    shape = d.shape()
    assert shape == StepShape(row, 0, kv_tokens, row_tokens, tuple((count, start + count) for start, count in parts))
    window = random.randint(1, 120)
    seen = [range(max(0, p + 1 - window), p + 1) for start, count in parts for p in range(start, start + count)]
    read = [set().union(*(range(max(0, p + 1 - window), p + 1) for p in range(start, start + count)))
            for start, count in parts]
    assert shape.seen(window) == (sum(map(len, read)), sum(map(len, seen)))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 70), st.integers(1, 40)), min_size=1, max_size=3),
       st.randoms())
def test_every_kv_group_has_its_own_pages(groups: int, parts: list[tuple[int, int]], random) -> None:
    """Holes stay what they are, and each row's slot lies in its own group's page, in the next step too."""
    d = StepDescriptor(120, 3, 3, 30 * groups, groups=groups)
    tables = []
    for i, (start, count) in enumerate(parts):
        maps = [random.sample(range(1000), 9) for _ in range(groups)]
        for group in range(1, groups):
            maps[group][: start // 16] = [HOLE] * (start // 16)
        tables.append(maps)
        d.add_sequence(range(count), start, maps[0], i, 3, maps[1:])
    for later in range(3):
        for row in range(d.rows):
            position, seq = int(d["position"][row]), int(d["seq"][row])
            for group in range(groups):
                mapped = tables[seq][group]
                assert d.slots(group)[row] == mapped[position // 16] * 16 + position % 16
                begin, used = d.tables(group)[seq], -(-(sum(parts[seq]) + 3) // 16)
                assert d["blocks"][begin : begin + used].tolist() == mapped[:used]
        if later == 0:  # as if each had only its last row
            d.clear()
            for i, (start, count) in enumerate(parts):
                d.add_sequence([0], start + count - 1, tables[i][0], i, 3, tables[i][1:])
        d.advance()


def test_a_table_of_int32_is_copied_as_it_lies_and_may_grow() -> None:
    """Step by step as a plain list of pages gives it, and no view of the table stays."""
    plain, copied, table, pages = StepDescriptor(40, 1, 1, 40), StepDescriptor(40, 1, 1, 40), entries(), []
    for end in range(1, 600, 7):
        while len(table) * 16 < end:
            table.append(3 * end)
            pages.append(3 * end)
        for d, mapped in ((plain, pages), (copied, table)):
            d.clear()
            d.add_sequence(range(min(end, 20)), end - min(end, 20), mapped, 0)
        assert (plain.buffer == copied.buffer).all()


def test_a_group_may_keep_a_slot_for_each_sequence() -> None:
    """Whatever its rows are; the arrays that a native plan reads lie where they lie without it."""
    d, plain = StepDescriptor(12, 3, 1, 6, groups=1, slot_groups=2), StepDescriptor(12, 3, 1, 6)
    d.add_sequence([1, 2, 3], 15, [8, 9], 0, 0, [[40], [5]])
    d.add_sequence([4], 32, [1, 2, 3], 1, 0, [[50], [6]])
    plain.add_sequence([1, 2, 3], 15, [8, 9], 0)
    plain.add_sequence([4], 32, [1, 2, 3], 1)
    assert (d.slot_of(1).tolist(), d.slot_of(2).tolist()) == ([40, 50], [5, 6])
    before = d.buffer.copy()
    assert (before[: plain.buffer.size] == plain.buffer).all()
    for slots in ([], [1, 2]):
        with pytest.raises(ValueError, match=f"{len(slots)} slots for a sequence that has one"):
            d.add_sequence([5], 0, [1], 2, 0, [[7], slots])
    assert (d.buffer == before).all()
    only = StepDescriptor(12, 3, 1, 0, groups=0, slot_groups=1)
    only.add_sequence([1], 99, [40], 0, 3)
    only.advance()
    assert (only["position"][0], only.slot_of(0).tolist()) == (100, [40])


def test_each_sequence_has_a_table_of_every_group() -> None:
    d = StepDescriptor(4, 2, 1, 8, groups=2)
    before = d.buffer.copy()
    for others in ([], [[1], [2]]):
        with pytest.raises(ValueError, match="block tables for 2 KV groups"):
            d.add_sequence([0], 0, [0], 0, others=others)
    with pytest.raises(ValueError, match="1 pages do not hold 17"):
        d.add_sequence([0] * 2, 15, [0, 1], 0, others=[[0]])
    assert (d.buffer == before).all()


def test_a_sample_keeps_its_settings() -> None:
    d = StepDescriptor(2, 1, 2, 1)
    d.add_sequence([1, 2], 0, [0], 0)
    draw = Draw(row=1, temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, seed=0, choice=0, repetition_penalty=1.3,
                presence_penalty=0.25, frequency_penalty=-0.5, top_logprobs=7)
    assert d.add_sample(0, Draw(), 0) == 0
    assert d.add_sample(1, draw, seed=0xFEDCBA9876543210, choice=3) == 1
    assert (d["sample_row"][1], d["choice"][1], d["top_k"][1]) == (1, 3, 40)
    assert [np.uint32(d[word].view(np.uint32)[1]) for word in ("seed_lo", "seed_hi")] == [0x76543210, 0xFEDCBA98]
    floats = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
    assert [d[name][1] for name in floats] == [np.float32(x) for x in (0.7, 0.9, 0.05, 1.3, 0.25, -0.5)]
    assert (d["target"][1], d["top_logprobs"][1], d["edit_count"][1]) == (-1, 7, 0)
    assert (d.samples, d.shape().samples) == (2, 2)


@pytest.mark.parametrize(("room", "pages"), [
    ({"rows": 19}, [0, 1]), ({"seqs": 1}, [0, 1]), ({"blocks": 2}, [0, 1]), ({}, [0])])
def test_what_does_not_fit_is_an_error_and_changes_nothing(room: dict[str, int], pages: list[int]) -> None:
    """Twenty rows of two sequences in three pages; the second is one page or one place too long."""
    d = StepDescriptor(**{"rows": 20, "seqs": 2, "samples": 1, "blocks": 3, **room})
    d.add_sequence([0, 0], 0, [5], 0)
    before = d.buffer.copy()
    with pytest.raises(ValueError, match=r"full|do not hold 18 tokens"):
        d.add_sequence([0] * 18, 0, pages, 1)
    assert (d.buffer == before).all()
    d.add_sample(0, Draw())
    with pytest.raises(ValueError, match="full"):
        d.add_sample(1, Draw())
    assert d.samples == 1


def test_one_sample_writes_a_relay_slot() -> None:
    """Of a sequence's samples, and of sequences that share a slot; again after `clear`."""
    d = StepDescriptor(4, 2, 8, 2)
    for _ in range(2):
        d.clear()
        d.add_sequence([1, 2, 3], 0, [0], 6)
        d.add_sequence([4], 0, [1], 6)
        d.add_sample(1, Draw())
        d.add_sample(0, Draw(), relay=True)
        before = d.buffer.copy()
        for row in (0, 2, 3):
            with pytest.raises(ValueError, match="two samples of a step write relay slot 6"):
                d.add_sample(row, Draw(), relay=True)
        assert (d.buffer == before).all()
        d.add_sample(3, Draw())
        assert d["relay"][: d.samples].tolist() == [-1, 6, -1]


def test_masks_lie_side_by_side_until_it_is_full() -> None:
    d = StepDescriptor(1, 1, 3, 1, masks=5)
    assert [d.add_mask(33), d.add_mask(64)] == [0, 2]
    d.mask(0, 33)[:] = 1, 2
    d.mask(2, 64)[:] = 3, 4
    assert d["masks"].tolist() == [1, 2, 3, 4, 0]
    with pytest.raises(ValueError, match="full"):
        d.add_mask(33)
    assert d.add_mask(32) == 4
    d.add_sample(0, Draw(), mask=2)
    d.add_sample(0, Draw())
    assert d["mask"][:2].tolist() == [2, -1]
    d.clear()
    assert d.add_mask(1) == 0


def test_it_holds_as_much_as_it_says_and_again_after_clear() -> None:
    d = StepDescriptor(20, 2, 1, 3)
    for _ in range(2):
        d.add_sequence([0, 0], 0, [5], 0)
        d.add_sequence([0] * 18, 0, [6, 7], 1)
        d.add_sample(19, Draw())
        assert d["blocks"].tolist() == [5, 6, 7]
        d.clear()
        assert (d.rows, d.seqs, d.samples) == (0, 0, 0)


def test_native_code_reads_it_at_any_capacities(native: Native) -> None:
    """Every array lies behind arrays of odd capacities; a draw depends on rows, positions and all of a sample."""
    rng = np.random.default_rng(2)
    x, weight = rng.standard_normal((9, 32)).astype(np.float32), floats(rng.standard_normal((40, 32)))
    backend = native()
    plan = head_plan(backend, x, np.ones(32, np.float32), 1e-5, weight, Sample(40))
    draws = [Draw(8 - i, 0.3 * i, i, 1 - 0.05 * i, 0.01 * i, seed=i << 33 | i) for i in range(9)]
    results = []
    for capacities in [(9, 2, 9, 2), (11, 3, 13, 7), (64, 17, 9, 5)]:
        ran = Ran(backend, plan, rows=9, samples=9)
        ran.step = StepDescriptor(*capacities)
        ran.step.add_sequence(range(4), 5, [0], 0)
        ran.step.add_sequence(range(4, 9), 0, [0], 1)
        for d in draws:
            ran.step.add_sample(d.row, d, d.seed, d.choice)
        out = ran.executable.run(ran.step)
        assert out.drawn.all()
        results.append((out.tokens.tolist(), ran.executable.logits(9).copy()))
    for tokens, logits in results[1:]:
        assert tokens == results[0][0]
        assert_same_bits(logits, results[0][1])
