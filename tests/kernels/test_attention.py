"""Paged attention: against the oracle and plain softmax, between instruction sets, in chunks, over poisoned pages.

Queries, keys and values come out of 8-bit projections of rows of +-1, which both sides compute to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.kernels.backend import Backend
from drut.kernels.kv import KV_DTYPES, KvLayout
from drut.kernels.numpy.numbers import quantize_row, round_bf16
from drut.kernels.ops import Attention, Buffer, Embed, Norm, Op, Qkv, RopeTable
from drut.kernels.weight import Matrix
from tests.kernels.conftest import Native
from tests.kernels.rig import (
    F32,
    Ran,
    Stored,
    assert_same_bits,
    blocks,
    filler_head,
    floats,
    oracle,
    recorded,
    usable_isas,
)

WIDTH, TOKENS = 32, 512  # so many that each chunk of a prompt has a largest score of its own
ROWS = 300  # of the largest step
KV_HEADS, LAYERS, LAYER = 2, 2, 1
NAN_TOKEN = TOKENS  # a row of no numbers
LENGTHS = (1, 2, 15, 16, 17, 255, 256, 257, 511, 513)
SIZES = [(16, 1), (16, 9), (16, 64), (32, 8), (48, 2), (64, 3), (64, 7), (80, 4), (128, 5), (256, 6)]
WINDOWS = (1, 2, 20, 250, 256, 300)
POISON, ZERO = 0xFF, 0


@dataclass(frozen=True)
class Shape:
    head_dim: int
    group: int
    dtype: str
    sharpness: float = 1.0  # of the softmax, over the usual 1 / sqrt(head_dim)
    window: int = 0
    cap: float = 0.0
    sinks: bool = False

    @property
    def heads(self) -> int:
        return KV_HEADS * self.group

    @property
    def scale(self) -> float:
        return self.sharpness * self.head_dim**-0.5

    @property
    def kv(self) -> KvLayout:
        return KvLayout(self.dtype, LAYERS, KV_HEADS, self.head_dim)

    def sink_logits(self) -> F32 | None:
        """About as large as the scores."""
        return np.random.default_rng(10).normal(0, 3, self.heads).astype(np.float32) if self.sinks else None

    def sees(self, position: int) -> slice:
        return slice(max(0, position + 1 - self.window) if self.window else 0, position + 1)

    def projections(self) -> list[Stored]:
        """q, k and v; scores spread by about 1.5."""
        rng = np.random.default_rng([self.head_dim, self.group])
        return [blocks("Q8_0", rng.integers(-16, 17, (heads * self.head_dim, WIDTH)), scale)
                for heads, scale in ((self.heads, 2.0**-5), (KV_HEADS, 2.0**-6), (KV_HEADS, 2.0**-5))]

    def activations(self) -> F32:
        rows = np.random.default_rng(9).choice([-1, 1], (TOKENS + 1, WIDTH)).astype(np.float32)
        rows[NAN_TOKEN] = np.nan
        return rows


@dataclass(frozen=True)
class Prompt:
    tokens: list[int]
    pages: list[int]
    slot: int


class Attending:
    """One pool with two plans over it: one that only writes keys and values, and one that also attends."""

    def __init__(self, backend: Backend, shape: Shape, *, pages: int, fill: int = POISON) -> None:
        self.out = Buffer("out", shape.heads * shape.head_dim)
        pool = backend.pool(shape.kv, pages)
        pool.data[:] = fill
        q, k, v = (p.on(backend) for p in shape.projections())
        few, every = _write(backend, shape, k, k, v), _write(backend, shape, q, k, v)
        sinks = shape.sink_logits()
        attention = Attention(layer=LAYER, q=Buffer("q", q.n), out=self.out, heads=shape.heads, kv=shape.kv,
                              scale=shape.scale, window=shape.window, cap=shape.cap,
                              sinks=None if sinks is None else backend.vector(sinks))
        self.writer, self.attender = (
            Ran(backend, recorded(*ops), rows=ROWS, kv=shape.kv, pages=pages, pool=pool)
            for ops in (few, [*every, attention]))

    def write(self, s: Prompt, count: int) -> None:
        """Keys and values of the first `count` tokens."""
        for start in range(0, count, ROWS):
            self.writer.run(s.tokens[start : min(count, start + ROWS)], start, s.pages)

    def attend(self, parts: Sequence[tuple[Prompt, int, int]]) -> F32:
        """One step: of each (sequence, start, end) the rows of tokens start..end."""
        step = self.attender.step
        step.clear()
        for s, start, end in parts:
            step.add_sequence(s.tokens[start:end], start, s.pages, s.slot)
        self.attender.executable.run(step)
        return self.attender.read(self.out)


def _write(backend: Backend, shape: Shape, q: Matrix, k: Matrix, v: Matrix) -> list[Op]:
    """Rows to queries, keys and values, all at angle zero."""
    x, rope = Buffer("x", WIDTH), Buffer("rope", shape.head_dim)
    norm = backend.vector(np.ones(WIDTH, np.float32))
    return [Embed(floats(shape.activations()).on(backend), x), RopeTable((0.0,) * (shape.head_dim // 2), rope),
            Qkv(layer=LAYER, x=x, norm=Norm(norm, 0.0), q_proj=q, k_proj=k, v_proj=v, rope=rope, q=Buffer("q", q.n),
                k=Buffer("k", k.n), v=Buffer("v", v.n), heads=q.n // shape.head_dim, kv=shape.kv),
            filler_head(backend, x)]


def sequences(rng: np.random.Generator, lengths: Sequence[int]) -> list[Prompt]:
    """Random tokens over shuffled pages."""
    counts = [-(-length // 16) for length in lengths]
    pages = np.split(rng.permutation(sum(counts)), np.cumsum(counts)[:-1])
    return [Prompt(rng.integers(0, TOKENS, length).tolist(), p.tolist(), slot)
            for slot, (length, p) in enumerate(zip(lengths, pages, strict=True))]


def ragged_decode(backend: Backend, shape: Shape, fill: int = POISON) -> F32:
    """The last rows, one to four, of a sequence of each length, in one step."""
    batch = sequences(np.random.default_rng(8), LENGTHS)
    run = Attending(backend, shape, pages=sum(len(s.pages) for s in batch), fill=fill)
    parts = [(s, max(0, len(s.tokens) - 1 - i % 4), len(s.tokens)) for i, s in enumerate(batch)]
    for s, start, _ in parts:
        run.write(s, start)
    return run.attend(parts)


def as_kept(shape: Shape, x: F32) -> F32:
    """Heads (..., head_dim) rounded as the KV format rounds them."""
    if shape.dtype == "int8":
        codes, scale = quantize_row(x)
        return codes * scale[..., None]
    return round_bf16(x) if shape.dtype == "bf16" else x


def plain_softmax(shape: Shape) -> np.ndarray:
    """What `ragged_decode` should give, in float64 over the values as the KV format keeps them."""
    rows = []
    y = shape.activations()
    heads = ((y @ w.values().T).astype(np.float32).reshape(len(y), -1, shape.head_dim) for w in shape.projections())
    q, k, v = (as_kept(shape, x).astype(np.float64) for x in heads)
    for i, s in enumerate(sequences(np.random.default_rng(8), LENGTHS)):
        for position in range(max(0, len(s.tokens) - 1 - i % 4), len(s.tokens)):
            seen = s.tokens[shape.sees(position)]
            keys, values = (np.repeat(x[seen], shape.group, axis=1) for x in (k, v))
            scores = np.einsum("hd,thd->ht", q[s.tokens[position]], keys) * shape.scale
            if shape.cap:
                scores = shape.cap * np.tanh(scores / shape.cap)
            top = scores.max(axis=1, keepdims=True)
            weights, sinks = np.exp(scores - top), shape.sink_logits()
            total = weights.sum(axis=1) + (0 if sinks is None else np.exp(sinks - top[:, 0]))
            rows.append((np.einsum("ht,thd->hd", weights, values) / total[:, None]).reshape(-1))
    return np.stack(rows)


SHAPES = [Shape(*size, dtype) for size in SIZES for dtype in KV_DTYPES]
SHAPES += [Shape(32, 3, dtype, window=window) for window in WINDOWS for dtype in KV_DTYPES]
SHAPES += [Shape(64, 5, dtype, window=131, cap=1.5, sinks=True) for dtype in KV_DTYPES]
SHAPES += [Shape(16, 2, dtype, cap=0.5) for dtype in KV_DTYPES]
SHAPES += [Shape(16, 9, dtype, sinks=True) for dtype in KV_DTYPES]


def shape_id(s: Shape) -> str:
    return f"{s.head_dim}x{s.group}-{s.dtype}-{s.window}-{s.cap}" + "-sinks" * s.sinks


@pytest.fixture(scope="module", params=SHAPES, ids=shape_id)
def shape(request: pytest.FixtureRequest) -> Shape:
    shape: Shape = request.param
    return shape


@pytest.fixture(scope="module")
def decoded(native: Native, shape: Shape) -> dict[str, F32]:
    """Ragged decode over poisoned pages, by instruction set."""
    return {isa: ragged_decode(native(isa), shape) for isa in usable_isas()}


def tolerance(shape: Shape) -> float:
    """Of values of about 2: exp to 2 units, sums of 513 weights; in bf16 each weight is rounded to 8 bits, in int8 to
    14, so that one of another exp may fall to the other side."""
    return 5e-6 if shape.dtype == "fp32" else 1e-3


def test_close_to_the_oracle(decoded: dict[str, F32], shape: Shape) -> None:
    expected = ragged_decode(oracle(), shape)
    np.testing.assert_allclose(decoded[usable_isas()[0]], expected, rtol=0, atol=tolerance(shape))


def test_close_to_plain_softmax(decoded: dict[str, F32], shape: Shape) -> None:
    # bf16 keeps weights to 2^-9 of themselves, int8 to 2^-15 of the largest; errors of many tokens mostly cancel.
    limit = 1e-5 if shape.dtype == "fp32" else 1e-2
    np.testing.assert_allclose(decoded[usable_isas()[0]], plain_softmax(shape), rtol=0, atol=limit)


def test_every_instruction_set_gives_the_same_bits(decoded: dict[str, F32]) -> None:
    reference, *others = decoded.values()
    for isa, result in zip(usable_isas()[1:], others, strict=True):
        assert_same_bits(result, reference, isa)


@pytest.mark.slow
def test_slots_past_the_length_do_not_matter(native: Native, shape: Shape, decoded: dict[str, F32]) -> None:
    for isa, over_poison in decoded.items():
        assert np.isfinite(over_poison).all()
        assert_same_bits(over_poison, ragged_decode(native(isa), shape, fill=ZERO), isa)


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("sharpness", [0.0, 60.0, -60.0, 1e20])
def test_extreme_scores(native: Native, isa: str, dtype: str, sharpness: float) -> None:
    """All scores equal; all but a few weights vanishing, whichever chunk holds the largest score."""
    shape = Shape(32, 2, dtype, sharpness)
    actual = ragged_decode(native(isa), shape)
    # A score of hundreds is off by its own rounding, and its weight by as much.
    np.testing.assert_allclose(actual, ragged_decode(oracle(), shape), rtol=0, atol=2e-3)
    assert_same_bits(actual, ragged_decode(native("portable"), shape), isa)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize(("head_dim", "group", "window"),
                         [(32, 3, 0), (64, 1, 0), (16, 17, 0), (32, 3, 37), (16, 5, 256)])
def test_chunks_and_neighbours_change_nothing(native: Native, isa: str, dtype: str, head_dim: int, group: int,
                                              window: int) -> None:
    """A prompt of 290 tokens whole, in uneven chunks, token by token, and among other sequences."""
    shape = Shape(head_dim, group, dtype, window=window, sinks=window == 256)
    one, other, third = sequences(np.random.default_rng(7), (290, 40, 273))
    pages = sum(len(s.pages) for s in (one, other, third))
    run = Attending(native(isa), shape, pages=pages)
    whole = run.attend([(one, 0, 290)])
    for chunk in (1, 7, 100):
        again = Attending(native(isa), shape, pages=pages)
        starts = range(0, 290, chunk) if chunk > 1 else range(250, 262)  # across the end of the first 256
        again.write(one, starts[0])
        for start in starts:
            end = min(290, start + chunk)
            assert_same_bits(again.attend([(one, start, end)]), whole[start:end], f"chunks of {chunk}")
    run.write(third, 270)
    among = run.attend([(other, 0, 33), (one, 240, 290), (third, 270, 273)])
    assert_same_bits(among[33:83], whole[240:], "among others")


@settings(max_examples=15, deadline=None)
@given(st.data())
@pytest.mark.slow
def test_any_schedule_gives_the_same_rows(native: Native, data: st.DataObject) -> None:
    """Sequences of any length, computed in any interleaving of any chunks, in pages in any order."""
    shape = Shape(16, 3, data.draw(st.sampled_from(KV_DTYPES)), window=data.draw(st.sampled_from((0, *WINDOWS))),
                  sinks=data.draw(st.booleans()))
    lengths = data.draw(st.lists(st.integers(1, 300), min_size=1, max_size=3))
    batch = sequences(np.random.default_rng(data.draw(st.integers(0, 99))), lengths)
    pages = sum(len(s.pages) for s in batch)
    alone = [Attending(native(), shape, pages=pages).attend([(s, 0, len(s.tokens))]) for s in batch]
    run = Attending(native(threads=3), shape, pages=pages)
    done = [0] * len(batch)
    while any(at < n for at, n in zip(done, lengths, strict=True)):
        parts = []
        for s, at, n in zip(batch, done, lengths, strict=True):
            count = data.draw(st.integers(0, min(ROWS // 3, n - at)))
            if count or (n > at and not parts):
                parts.append((s, at, at + max(1, count)))
        rows = run.attend(parts)
        for s, start, end in parts:
            assert_same_bits(rows[: end - start], alone[s.slot][start:end])
            rows, done[s.slot] = rows[end - start :], end


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("window", [5, 16, 40, 257])
def test_slots_before_the_window_do_not_matter(native: Native, isa: str, dtype: str, window: int) -> None:
    """Even if another row sees them, and even if they are NaN."""
    shape, rows = Shape(32, 3, dtype, window=window), 3
    s = sequences(np.random.default_rng(8), (300,))[0]
    start = len(s.tokens) - rows
    hidden = start + 1 - window  # the first row's window begins here
    run = Attending(native(isa), shape, pages=len(s.pages))
    run.write(s, start)
    clean = run.attend([(s, start, len(s.tokens))])
    for page in s.pages[: hidden // 16]:
        run.attender.pool.data[page] = POISON
    assert_same_bits(run.attend([(s, start, len(s.tokens))]), clean, "pages")
    bad = Attending(native(isa), shape, pages=len(s.pages))
    bad.write(Prompt([*s.tokens[:hidden], NAN_TOKEN, *s.tokens[hidden + 1 :]], s.pages, s.slot), start)
    first, *others = bad.attend([(s, start, len(s.tokens))])
    assert np.isnan(first).any()
    assert_same_bits(np.stack(others), clean[1:], "slots")


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_what_is_not_finite_shows(native: Native, isa: str, dtype: str) -> None:
    """A NaN among the keys a row sees makes the row's output NaN; a row before it stays as it was."""
    shape = Shape(16, 2, dtype)
    s = sequences(np.random.default_rng(6), (40,))[0]
    for fill in (0x7FC00000, 0x7F800000) if dtype == "fp32" else (0xFFFFFFFF,):  # NaN, infinity
        run = Attending(native(isa), shape, pages=3, fill=ZERO)
        clean = run.attend([(s, 0, 40)])
        run.attender.pool.data.view(np.uint32)[s.pages[1]] = fill  # positions 16..31
        rows = run.attend([(s, 15, 16), (s, 39, 40)])
        assert_same_bits(rows[0], clean[15])
        assert not np.isfinite(rows[1]).any()


def test_an_infinite_value_of_no_weight_shows_too(native: Native, isa: str) -> None:
    """int8: 0 * inf is a NaN of either sign, by the CPU; each instruction set must see it."""
    shape = Shape(16, 2, "int8", sharpness=1e20)  # all weights but the largest are 0
    s = sequences(np.random.default_rng(6), (40,))[0]
    run = Attending(native(isa), shape, pages=3, fill=ZERO)
    run.attend([(s, 0, 40)])
    page = run.attender.pool.data[s.pages[1]]  # positions 16..31
    for head in range(KV_HEADS):
        scales = LAYER * shape.kv.layer_bytes + head * shape.kv.head_bytes + 2 * 16 * shape.head_dim + 64
        page[scales : scales + 64].view(np.float32)[:] = np.inf
    assert not np.isfinite(run.attend([(s, 39, 40)])).any()
