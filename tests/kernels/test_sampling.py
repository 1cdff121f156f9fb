"""Sampling: native against its twin, the distribution of draws, ties, filters at their ends, logits past all bounds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from drut.kernels.backend import Backend
from drut.kernels.descriptor import RELAY
from drut.kernels.numpy import sampling as twin
from drut.kernels.ops import Sample
from tests.kernels.conftest import Native
from tests.kernels.rig import F32, Draw, Ran, Sampler, assert_same_bits, floats, head_plan, oracle, usable_isas

VOCABS = [(1, 100), (15, 500), (16, 500), (17, 500), (1000, 500), (49152, 24)]  # and how many draws of each
TEMPERATURES = (0.0, 1e-6, 0.05, 0.7, 1.0, 3.0, 100.0)
TOP_K = (0, 0, 1, 2, 5, 40, 999, 49151, 1 << 30)
TOP_P = (1.0, 1.0, 1e-30, 0.1, 0.5, 0.9, 0.999)
MIN_P = (0.0, 0.0, 1e-30, 0.05, 0.5, 1.0)


def random_logits(rng: np.random.Generator, vocab: int) -> F32:
    """16 rows: spread, flat, steep, of few values (many ties), and one all equal."""
    rows = rng.standard_normal((16, vocab)) * np.geomspace(0.01, 30, 16)[:, None]
    rows[::3] = np.round(rows[::3])
    rows[15] = 0.0
    return rows.astype(np.float32)


def random_draw(rng: np.random.Generator) -> Draw:
    t, k, p, m = (rng.choice(options) for options in (TEMPERATURES, TOP_K, TOP_P, MIN_P))
    return Draw(row=int(rng.integers(16)), temperature=float(t), top_k=int(k), top_p=float(p), min_p=float(m),
                seed=int(rng.integers(2**64, dtype=np.uint64)), choice=int(rng.integers(3)))


def expected(logits: F32, d: Draw) -> int:
    values = {"temperature": np.float32(d.temperature), "top_p": np.float32(d.top_p), "min_p": np.float32(d.min_p)}
    return twin.sample(logits[d.row], top_k=d.top_k, seed=d.seed, position=d.row + 1, choice=d.choice,
                       **{name: float(value) for name, value in values.items()})


def nearly(logits: F32, d: Draw, token: int) -> bool:
    """Whether `token` is what a filter that decides by a last place the other way gives: the twin's exponentials and
    sums are others."""
    near = [dataclasses.replace(d, top_p=min(1.0, d.top_p * (1 + e)), min_p=d.min_p * (1 + f))
            for e in (-1e-5, 0, 1e-5) for f in (-1e-6, 0, 1e-6)]
    return token in [expected(logits, n) for n in near]


@pytest.mark.parametrize(("vocab", "count"), VOCABS)
def test_native_draws_what_its_twin_draws(native: Native, vocab: int, count: int) -> None:
    rng = np.random.default_rng(vocab)
    logits, draws = random_logits(rng, vocab), [random_draw(rng) for _ in range(count)]
    sampler = Sampler(native(), logits, count)
    tokens, off = sampler.ids(draws), []
    assert_same_bits(sampler.logits(count), logits[[d.row for d in draws]] + 0)
    for d, token in zip(draws, tokens, strict=True):
        if token != expected(logits, d):
            assert nearly(logits, d, token), d
            off.append(d)
    assert len(off) <= count // 100
    for isa in usable_isas():
        assert Sampler(native(isa, 1), logits, count).ids(draws) == tokens, isa


@pytest.fixture(params=["numpy", *usable_isas()])
def backend(request: pytest.FixtureRequest) -> Backend:
    """The twin, then each instruction set."""
    if request.param == "numpy":
        return oracle()
    return request.getfixturevalue("native")(request.param)


def seeds(count: int, **settings: float) -> list[Draw]:
    return [Draw(seed=seed, **settings) for seed in range(count)]


def chi_square(ids: list[int], weights: np.ndarray) -> float:
    expectation = len(ids) * weights / weights.sum()
    assert expectation.min() >= 5
    return float(((np.bincount(ids, minlength=len(weights)) - expectation) ** 2 / expectation).sum())


LOGITS = np.array([[1.5, -1, 0, 2, 2, -0.5, 0.25, 1, -1.5, 0.5, 1.75, -0.25, 0.75, -0.75, 1.25, 2.25]], np.float32)
# What a chi-square of so many degrees of freedom passes once in ten thousand times.
BEYOND_CHANCE = {15: 44.3, 3: 21.1, 4: 23.5}


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_draws_follow_the_softmax(native: Native, temperature: float) -> None:
    ids = Sampler(native(), LOGITS, 8000).ids(seeds(8000, temperature=temperature))
    assert chi_square(ids, np.exp(LOGITS[0].astype(np.float64) / temperature)) < BEYOND_CHANCE[15]


@pytest.mark.parametrize("cut", [{"top_k": 4}, {"top_p": 0.55}, {"min_p": 0.55}])
def test_draws_follow_the_softmax_of_what_a_filter_keeps(native: Native, cut: dict[str, float]) -> None:
    """The four likeliest (2.25, 2, 2, 1.75 at ids 15, 3, 4, 10), in the same proportions; no other is drawn."""
    ids = Sampler(native(), LOGITS, 4000).ids(seeds(4000, temperature=1.0, **cut))
    kept = [3, 4, 10, 15]
    assert set(ids) == set(kept)
    assert chi_square([kept.index(i) for i in ids], np.exp(LOGITS[0, kept].astype(np.float64))) < BEYOND_CHANCE[3]


def test_positions_choices_and_seeds_give_independent_draws(native: Native) -> None:
    """Of two tokens of equal logit, changing one key alone gives the other token half the time."""
    sampler = Sampler(native(), np.zeros((16, 2), np.float32), 1024)
    draws = [Draw(row, 1.0, choice=choice, seed=seed << 32)
             for row in range(16) for choice in range(8) for seed in range(8)]
    ids = np.array(sampler.ids(draws)).reshape(16, 8, 8)
    for axis in range(3):
        changed = np.diff(ids, axis=axis) != 0
        assert abs(changed.mean() - 0.5) < 4 * 0.5 / changed.size**0.5


@pytest.mark.parametrize("vocab", [1, 15, 16, 17, 100])
def test_ties_take_the_lowest_id(backend: Backend, vocab: int) -> None:
    logits = np.full((16, vocab), -1.0, np.float32)
    for row in range(16):
        logits[row, row * vocab // 16 :: 3] = 2.0
    rows = range(16)
    first = [int(logits[row].argmax()) for row in rows]
    sampler = Sampler(backend, logits, 16)
    for greedy in ({"temperature": 0.0}, {"temperature": 1.0, "top_k": 1}, {"temperature": 1.0, "top_p": 1e-30}):
        assert sampler.ids([Draw(row, **greedy) for row in rows]) == first, greedy


def test_top_k_among_ties_keeps_the_lowest_ids(backend: Backend) -> None:
    sampler = Sampler(backend, np.zeros((1, 40), np.float32), 200)
    assert set(sampler.ids(seeds(200, temperature=1.0, top_k=3))) == {0, 1, 2}
    assert set(sampler.ids(seeds(200, temperature=1.0, top_p=0.09))) == {0, 1, 2, 3}  # 3.6 of 40


def test_filters_at_their_ends(backend: Backend) -> None:
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((4, 100)).astype(np.float32)
    sampler = Sampler(backend, logits, 400)
    draws = [Draw(i % 4, 1.5, seed=i) for i in range(400)]
    free = sampler.ids(draws)

    def same(**settings: float) -> bool:
        return sampler.ids([dataclasses.replace(d, **settings) for d in draws]) == free

    for settings in ({"top_k": 100}, {"top_k": 1 << 30}, {"min_p": 1e-30}):
        assert same(**settings), settings
    best = [int(logits[d.row].argmax()) for d in draws]
    for one in ({"top_k": 1}, {"top_p": 1e-30}, {"min_p": 1.0}, {"temperature": 1e-6}):
        assert sampler.ids([dataclasses.replace(d, **one) for d in draws]) == best, one


@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}])
@pytest.mark.parametrize("temperature", [1e-44, 1e-38, 1e-30, 1e-10])
def test_temperatures_near_zero_are_greedy(backend: Backend, temperature: float, filters: dict[str, float]) -> None:
    """Also where a logit over the temperature is past the largest float."""
    for logits in ([1, 5, 7, 6, 7.5, 2, 3, -4], [-9, -5, -7, -6, -4.5, -8, -7, -4.75], [1e-3, 2e-3, 0, -1, 4e-3, 3e-3]):
        sampler = Sampler(backend, np.array([logits], np.float32), 1)
        assert sampler.ids([Draw(temperature=temperature, **filters)]) == [4]


@pytest.mark.parametrize("size", [1e-30, 1e30, 3e38])
def test_logits_of_any_size(backend: Backend, size: float) -> None:
    logits = np.array([[0, 0.25, 1, -1, 0.5]], np.float32) * np.float32(size)
    sampler = Sampler(backend, logits, 200)
    assert sampler.ids([Draw()]) == [2]
    ids = sampler.ids(seeds(200, temperature=1.0))
    assert set(ids) == (set(range(5)) if size < 1 else {2})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_told(backend: Backend, bad: float) -> None:
    """At any position: no token is drawn, and the status of the output reports it."""
    for vocab, at in [(1, 0), (15, 14), (16, 0), (17, 16), (33, 5), (33, 31)]:
        logits = np.zeros((1, vocab), np.float32)
        sampler = Sampler(backend, logits, 2)
        assert sampler.draw([Draw(), Draw(temperature=1.0)]).drawn.tolist() == [True, True]
        logits[0, at] = bad
        out = Sampler(backend, logits, 2).draw([Draw(), Draw(temperature=1.0)])
        assert out.drawn.tolist() == [False, False]
        assert out.tokens.tolist() == [0, 0]


def test_a_row_that_is_not_finite_leaves_the_others_alone(backend: Backend) -> None:
    x, weight = np.ones((3, 32), np.float32), floats(np.random.default_rng(0).standard_normal((40, 32)))
    x[1, 7] = np.nan
    plan = head_plan(backend, x, np.ones(32, np.float32), 1e-5, weight, Sample(40))
    ran = Ran(backend, plan, rows=3, samples=3)
    ran.step.clear()
    ran.step.add_sequence(range(3), 0, [0], 0)
    for row in range(3):
        ran.step.add_sample(row, Draw())
    out = ran.executable.run(ran.step)
    assert out.drawn.tolist() == [True, False, True]
    assert out.tokens.tolist() == [best := int(weight.values().sum(axis=1).argmax()), 0, best]


def test_the_outputs_of_a_step_are_its_own(backend: Backend) -> None:
    """No later step of fewer, as many or more samples writes them; a redraw of the last step does."""
    logits = np.eye(16, dtype=np.float32)
    ran = Ran(backend, head_plan(backend, logits, np.ones(16, np.float32), 1e-5, floats(logits), Sample(16)), rows=5,
              samples=5)
    kept = []
    for rows in (range(3), range(5, 7), range(1, 4), range(9, 14)):
        ran.step.clear()
        row = ran.step.add_sequence(rows, 0, [0], 0)
        for i in range(len(rows)):
            ran.step.add_sample(row + i, Draw(top_logprobs=2))
        out = ran.executable.run(ran.step)
        kept.append((out, [field.copy() for field in out]))
        assert out.tokens.tolist() == list(rows)
    for out, copies in kept:
        assert all(np.array_equal(field, copy) for field, copy in zip(out, copies, strict=True))
    ran.step["target"][1] = 3
    ran.executable.redraw(ran.step, [1])
    assert kept[-1][0].tokens.tolist() == [9, 3, 11, 12, 13]


def test_the_relay_feeds_the_next_step(backend: Backend) -> None:
    """A row whose token is the relay takes what its sequence sampled last: here each token's successor, two sequences
    in two slots, in either order."""
    table = np.eye(16, dtype=np.float32)
    weight = floats(np.roll(table, 1, axis=0))  # token t makes t + 1 the likeliest
    plan = head_plan(backend, table, np.ones(16, np.float32), 1e-5, weight, Sample(16))
    ran = Ran(backend, plan, rows=2, samples=2)
    for position, inputs in enumerate([{0: 3, 1: 9}, {0: RELAY, 1: RELAY}, {1: RELAY, 0: RELAY}, {1: 14, 0: RELAY}]):
        ran.step.clear()
        for slot, token in inputs.items():
            ran.step.add_sample(ran.step.add_sequence([token], position, [0], slot), Draw(), relay=True)
        tokens = dict(zip(inputs, ran.executable.run(ran.step).tokens.tolist(), strict=True))
        assert tokens == {0: 4 + position, 1: 15 if position == 3 else 10 + position}
