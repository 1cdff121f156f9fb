"""Edits, logprobs, targets, hosts: every instruction set against the oracle, on logits that a host puts in place."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from drut.kernels.backend import Backend, BackendLimits, StepOutput
from drut.kernels.descriptor import MAX_TOP_LOGPROBS, RELAY, Edits, StepDescriptor, mask_words
from drut.kernels.native.burst import NativeBurst
from drut.kernels.native.executable import NativeExecutable
from drut.kernels.ops import Buffer, Embed, GateUp, Head, Norm, Project, Sample
from drut.kernels.output import Status
from drut.kernels.plan import BEFORE_HEAD, BEFORE_SAMPLE, Plan, Recorder
from tests.kernels.conftest import Native
from tests.kernels.rig import F32, NO_KV, Draw, assert_same_bits, floats, oracle, usable_isas

VOCABS = (1, 16, 17, 1000, 1024, 1025, 3000)


class Ask(NamedTuple):
    """One sample: how it is drawn from row `draw.row`, its target, its edits and the ids it may draw."""

    draw: Draw = Draw()
    target: int = -1
    edits: Edits | None = None
    allowed: tuple[int, ...] | None = None


def edits(*listed: tuple[int, float, int, int]) -> Edits:
    """Of (id, bias, count, seen)."""
    ids, bias, counts, seen = zip(*listed, strict=True)
    return Edits(np.array(ids, np.int32), np.array(bias, np.float32), np.array(counts, np.int32),
                 np.array(seen, np.int32))


class Given:
    """Samples from rows of logits that the host writes before the sampler reads them."""

    def __init__(self, backend: Backend, logits: F32, samples: int) -> None:
        rows, vocab = logits.shape
        x = Buffer("x", 32)
        recorder = Recorder()
        recorder.add(Embed(floats(np.zeros((2, 32))).on(backend), x))
        recorder.stop(BEFORE_HEAD)
        norm = Norm(backend.vector(np.zeros(32, np.float32)), 1.0)
        recorder.add(Head(x, norm, floats(np.zeros((vocab, 32))).on(backend)))
        recorder.stop(BEFORE_SAMPLE)
        recorder.add(Sample(vocab))
        self.logits, self.stops = logits, list[str]()
        self.executable = backend.load(recorder.finish(), [backend.pool(NO_KV, 1)], BackendLimits(rows, samples, 2))
        self.step = StepDescriptor(rows=rows, seqs=1, samples=samples, blocks=1, edits=samples * vocab,
                                   masks=samples * mask_words(vocab))

    def run(self, asks: Sequence[Ask]) -> StepOutput:
        self.step.clear()
        self.step.add_sequence([0] * len(self.logits), 0, [0], 1)
        for draw, target, change, allowed in asks:
            mask = -1 if allowed is None else self.put_mask(allowed)
            self.step.add_sample(draw.row, draw, draw.seed, draw.choice, target=target, edits=change, mask=mask)

        def host(stop: str) -> None:
            self.stops.append(stop)
            if stop == BEFORE_SAMPLE:
                self.executable.logits(len(asks))[:] = self.logits[[ask.draw.row for ask in asks]]

        self._out = self.executable.run(self.step, host)
        return StepOutput(*(field.copy() for field in self._out))

    def redraw(self, samples: Sequence[int]) -> StepOutput:
        """After `run`."""
        self.executable.redraw(self.step, samples)
        return StepOutput(*(field.copy() for field in self._out))

    def put_mask(self, allowed: Sequence[int]) -> int:
        vocab = self.logits.shape[1]
        first = self.step.add_mask(vocab)
        bits = np.zeros(32 * mask_words(vocab), np.uint8)
        bits[list(allowed)] = 1
        bits[vocab:] = 1  # of no id
        self.step.mask(first, vocab)[:] = np.packbits(bits, bitorder="little").view(np.int32)
        return first


@pytest.fixture(params=["numpy", *usable_isas()])
def backend(request: pytest.FixtureRequest) -> Backend:
    """The oracle, then each instruction set."""
    return oracle() if request.param == "numpy" else request.getfixturevalue("native")(request.param)


def random_logits(rng: np.random.Generator, vocab: int) -> F32:
    """Eight rows: smooth ones, rounded ones with many ties, and one of all the same."""
    rows = rng.standard_normal((8, vocab)) * np.geomspace(0.1, 20, 8)[:, None]
    rows[::2] = np.round(rows[::2])
    rows[7] = -3.0
    return rows.astype(np.float32)


def random_ask(rng: np.random.Generator, vocab: int) -> Ask:
    def one_of(*options: float) -> float:
        return float(rng.choice(options))

    draw = Draw(row=int(rng.integers(8)), temperature=one_of(0, 0.7, 1), top_k=int(one_of(0, 5, 900)),
                top_p=one_of(1, 0.9), min_p=one_of(0, 0.05), seed=int(rng.integers(2**63)), choice=int(rng.integers(3)),
                repetition_penalty=one_of(1, 1.3, 0.8), presence_penalty=one_of(0, 0.5, -1.5),
                frequency_penalty=one_of(0, 0.25, -0.1), top_logprobs=int(one_of(-1, 0, 1, 5, MAX_TOP_LOGPROBS)))
    count = int(rng.integers(0, min(vocab, 300)))
    ids = rng.permutation(vocab)[:count].astype(np.int32)
    bias = rng.choice(np.array([0, 0, 0, 5, -5, -np.inf], np.float32), count)
    counts = (rng.integers(0, 4, count) * rng.integers(0, 2, count)).astype(np.int32)
    listed = Edits(ids, bias, counts, np.maximum(counts > 0, rng.integers(0, 2, count)).astype(np.int32))
    target = int(rng.choice([-1, -1, rng.integers(vocab)]))
    allowed = rng.permutation(vocab)[: rng.choice([1, 3, max(1, vocab // 2), vocab])]
    return Ask(draw, target, listed if count else None, tuple(allowed.tolist()) if rng.integers(2) else None)


@pytest.mark.parametrize("vocab", VOCABS)
def test_every_instruction_set_reports_what_the_oracle_does(native: Native, vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    logits, asks = random_logits(rng, vocab), [random_ask(rng, vocab) for _ in range(60)]
    expected = Given(oracle(), logits, 60).run(asks)
    first: StepOutput | None = None
    for isa in usable_isas():
        out = Given(native(isa), logits, 60).run(asks)
        for name in ("tokens", "status", "ranks", "top_ids"):
            assert getattr(out, name).tolist() == getattr(expected, name).tolist(), (isa, name)
        np.testing.assert_allclose(out.logprobs, expected.logprobs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(out.top_logprobs, expected.top_logprobs, rtol=1e-5, atol=1e-5)
        first = first or out
        assert_same_bits(out.logprobs, first.logprobs, isa)
        assert_same_bits(out.top_logprobs, first.top_logprobs, isa)


@pytest.mark.parametrize("vocab", VOCABS)
def test_only_what_a_mask_allows_is_drawn(backend: Backend, vocab: int) -> None:
    """Whatever filters are on, and though the logits of all others are higher; logprobs do not see the mask."""
    rng = np.random.default_rng(vocab)
    logits = random_logits(rng, vocab)
    asks = []
    for i in range(48):
        allowed = tuple(rng.permutation(vocab)[: int(rng.integers(1, 4))].tolist())
        logits[i % 8, list(allowed)] -= np.float32(40)
        draw = Draw(row=i % 8, temperature=i % 3, top_k=[0, 1, 40][i // 3 % 3], top_p=[1, 0.5][i % 2],
                    min_p=[0, 0.5][i // 2 % 2], seed=i, top_logprobs=0)
        asks.append(Ask(draw, allowed=allowed))
    masked = Given(backend, logits, 48).run(asks)
    assert masked.drawn.all()
    assert all(int(token) in (ask.allowed or ()) for token, ask in zip(masked.tokens, asks, strict=True))
    given = [Ask(ask.draw, target=int(token)) for ask, token in zip(asks, masked.tokens, strict=True)]
    scored = Given(backend, logits, 48).run(given)
    assert_same_bits(masked.logprobs, scored.logprobs)
    assert masked.ranks.tolist() == scored.ranks.tolist()


@pytest.mark.parametrize("vocab", VOCABS)
def test_drawn_again_under_a_mask_is_as_if_it_had_been_there(backend: Backend, vocab: int) -> None:
    """And those that are not drawn again stay as they are."""
    rng = np.random.default_rng(vocab)
    logits = random_logits(rng, vocab)
    asks = [random_ask(rng, vocab) for _ in range(40)]
    masked = Given(backend, logits, 40).run(asks)
    later = Given(backend, logits, 40)
    free = later.run([ask._replace(allowed=None) for ask in asks])
    again = [i for i in rng.permutation(40).tolist() if i % 3]
    for i in again:
        if (allowed := asks[i].allowed) is not None:
            later.step["mask"][i] = later.put_mask(allowed)
    out = later.redraw(again)
    for name, field in out._asdict().items():
        for i in range(40):
            assert field[i].tobytes() == getattr(masked if i in again else free, name)[i].tobytes(), (name, i)


def test_a_burst_that_is_made_while_samples_are_drawn_again_draws_all(
        native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread makes it, of what the executable's runs read."""
    given = Given(native(), np.zeros((1, 16), np.float32), 2)
    executable, made = given.executable, list[NativeBurst]()
    assert isinstance(executable, NativeExecutable)
    given.run([Ask(), Ask()])
    real = executable._call

    def call(*args: Any) -> None:
        burst = executable.burst(2, [[]])
        assert isinstance(burst, NativeBurst)
        made.append(burst)
        real(*args)

    monkeypatch.setattr(executable, "_call", call)
    given.redraw([1])
    assert [burst.context.chosen for burst in made] == [None]


def test_what_is_drawn_and_allowed_is_what_a_mask_would_leave(backend: Backend) -> None:
    """The ground for asking a grammar only afterwards, where no filter looks at the others."""
    rng, seen = np.random.default_rng(3), 0
    logits = random_logits(rng, 1025)
    asks = [random_ask(rng, 1025) for _ in range(300)]
    asks = [ask._replace(draw=dataclasses.replace(ask.draw, top_k=0, top_p=1.0, min_p=0.0), target=-1) for ask in asks]
    free = Given(backend, logits, 300).run([ask._replace(allowed=None) for ask in asks])
    masked = Given(backend, logits, 300).run(asks)
    for i, ask in enumerate(asks):
        if ask.allowed is not None and free.drawn[i] and int(free.tokens[i]) in ask.allowed:
            seen += len(ask.allowed) < 1025
            assert all(getattr(free, name)[i].tobytes() == getattr(masked, name)[i].tobytes() for name in free._fields)
    assert seen > 10


def test_a_mask_of_all_ids_changes_nothing(backend: Backend) -> None:
    rng = np.random.default_rng(1)
    logits = random_logits(rng, 1025)
    asks = [random_ask(rng, 1025)._replace(allowed=None) for _ in range(30)]
    free = Given(backend, logits, 30).run(asks)
    masked = Given(backend, logits, 30).run([ask._replace(allowed=tuple(range(1025))) for ask in asks])
    assert [field.tobytes() for field in free] == [field.tobytes() for field in masked]


def test_where_edits_and_mask_leave_no_id_there_is_no_token(backend: Backend) -> None:
    logits = np.zeros((1, 40), np.float32)
    held = edits((3, -np.inf, 0, 0), (4, -np.inf, 0, 0))
    asks = [Ask(edits=held, allowed=(3, 4)), Ask(edits=held, allowed=(3, 4, 5)), Ask(allowed=())]
    out = Given(backend, logits, 3).run(asks)
    assert out.status.tolist() == [Status.NONE_LEFT, Status.DRAWN, Status.NONE_LEFT]
    assert out.tokens[1] == 5


def test_company_and_threads_change_no_bit(native: Native) -> None:
    rng = np.random.default_rng(5)
    logits, asks = random_logits(rng, 1025), [random_ask(rng, 1025) for _ in range(30)]
    whole = Given(native(threads=3), logits, 30).run(asks)
    for i, ask in enumerate(asks):
        alone = Given(native(execution="eager", threads=1), logits, 1).run([ask])
        assert [field[0].tobytes() for field in alone] == [field[i].tobytes() for field in whole]


def test_logprobs_are_of_the_raw_logits(backend: Backend) -> None:
    """Whatever draws the token: an exact log softmax, the place in its order, and the likeliest ids of it."""
    for vocab in (1, 17, 1025):
        logits = random_logits(np.random.default_rng(vocab), vocab)
        rising = edits(*((i, -1.0 * i, 1, 1) for i in range(vocab)))
        settings = {"temperature": 0.5, "top_p": 0.9, "presence_penalty": 1.0, "top_logprobs": MAX_TOP_LOGPROBS}
        asks = [Ask(Draw(row, top_logprobs=20)) for row in range(8)]
        asks += [Ask(Draw(row, **settings), edits=rising) for row in range(8)]
        out = Given(backend, logits, 16).run(asks)
        for i, ask in enumerate(asks):
            row = logits[ask.draw.row].astype(np.float64)
            exact = row - row.max() - np.log(np.exp(row - row.max()).sum())
            order = np.lexsort((np.arange(vocab), -row))
            n = min(vocab, MAX_TOP_LOGPROBS)
            assert out.top_ids[i].tolist() == [*order[:n], *[-1] * (MAX_TOP_LOGPROBS - n)]
            assert order[out.ranks[i] - 1] == out.tokens[i]
            np.testing.assert_allclose(out.logprobs[i], exact[out.tokens[i]], rtol=2e-6, atol=2e-6)
            np.testing.assert_allclose(out.top_logprobs[i, :n], exact[order[:n]], rtol=2e-6, atol=2e-6)
            assert not out.top_logprobs[i, n:].any()


def test_only_what_is_asked_for_is_reported(backend: Backend) -> None:
    given = Given(backend, np.arange(40, dtype=np.float32)[None], 2)
    for first, second in [(-1, 3), (3, -1), (0, -1), (-1, 0)]:  # what an earlier run left does not show
        out = given.run([Ask(Draw(top_logprobs=first)), Ask(Draw(top_logprobs=second))])
        for i, wanted in enumerate((first, second)):
            assert out.ranks[i] == (1 if wanted >= 0 else 0)
            assert (out.logprobs[i] < 0) == (wanted >= 0)
            assert out.top_ids[i].tolist() == [39, 38, 37][: max(wanted, 0)] + [-1] * (20 - max(wanted, 0))
            assert np.count_nonzero(out.top_logprobs[i]) == max(wanted, 0)


# Settings, (logit, bias, count, seen), and the logit that comes of it.
F = np.float32
RULES = {
    "bias": ({}, (1.5, 2.25, 0, 0), 3.75),
    "a positive logit is divided": ({"repetition_penalty": 1.3}, (2.0, 0.0, 0, 1), F(2) / F(1.3)),
    "a negative one is multiplied": ({"repetition_penalty": 1.3}, (-0.3, 0.0, 0, 1), F(-0.3) * F(1.3)),
    "only where seen": ({"repetition_penalty": 1.3}, (2.0, 0.0, 0, 0), 2.0),
    "the bias comes first": ({"repetition_penalty": 2.0}, (1.0, -3.0, 0, 1), -4.0),
    "frequency counts": ({"frequency_penalty": 0.7}, (1.0, 0.0, 3, 1), F(1) - F(0.7) * F(3)),
    "presence does not": ({"presence_penalty": 0.7}, (1.0, 0.0, 3, 1), F(1) - F(0.7)),
    "the prompt is not in it": ({"presence_penalty": 0.7, "frequency_penalty": 0.7}, (1.0, 0.0, 0, 1), 1.0),
    "one after the other": ({"repetition_penalty": 1.3, "presence_penalty": 0.1, "frequency_penalty": 0.3},
                            (3.0, 0.1, 2, 1), ((F(3) + F(0.1)) / F(1.3) - F(0.3) * F(2)) - F(0.1)),
}


@pytest.mark.parametrize("rule", RULES)
def test_an_edited_logit_to_the_last_bit(backend: Backend, rule: str) -> None:
    """It wins against the float below what it should be and loses to the one above; the order of edits is free."""
    settings, (logit, bias, count, seen), expected = RULES[rule]
    below, above = (np.nextafter(F(expected), F(side)) for side in (-np.inf, np.inf))
    logits = np.array([[-50, logit, below], [-50, logit, above]], np.float32)
    listed = (1, bias, count, seen)
    for change in (edits(listed), edits((0, 1.0, 0, 0), listed), edits(listed, (0, -np.inf, 5, 1))):
        asks = [Ask(Draw(row, **settings), edits=change) for row in range(2)]
        assert Given(backend, logits, 2).run(asks).tokens.tolist() == [1, 2]


def test_a_forbidden_id_is_never_drawn(backend: Backend) -> None:
    logits = np.zeros((1, 70), np.float32)
    logits[0, ::7] = 9.0
    allowed = [3, 5, 69]
    change = edits(*((i, -np.inf, i % 2, 1) for i in range(70) if i not in allowed))
    settings = [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 40}, {"temperature": 3.0, "top_p": 0.99},
                {"temperature": 1.0, "min_p": 0.1}]
    asks = [Ask(Draw(seed=i, repetition_penalty=1.1, **settings[i % 5]), edits=change) for i in range(200)]
    tokens = Given(backend, logits, 200).run(asks).tokens
    assert set(tokens.tolist()) == set(allowed)
    assert set(tokens[::5].tolist()) == {3}


def test_edits_that_leave_no_id_are_told(backend: Backend) -> None:
    logits = np.array([[1, 2, 3], [3e38, 3e38, 1]], np.float32)
    nothing = edits(*((i, -np.inf, 0, 0) for i in range(3)))
    beyond = edits((1, 3e38, 0, 0))
    asks = [Ask(Draw(t, t)) for t in (0, 1)] + [
        Ask(Draw(temperature=t, top_logprobs=2), edits=nothing) for t in (0.0, 1.0)] + [Ask(Draw(1), edits=beyond)]
    out = Given(backend, logits, 5).run(asks)
    assert out.status.tolist() == [Status.DRAWN] * 2 + [Status.NONE_LEFT] * 3
    assert out.tokens[2:].tolist() == [0, 0, 0]
    assert out.ranks.tolist() == [0] * 5


def test_a_target_is_scored_and_not_drawn(backend: Backend) -> None:
    logits = np.array([[0, 1, 2, 3, 3, 1]], np.float32)
    loud = edits((0, 100.0, 0, 0))
    given = Given(backend, logits, 6)
    out = given.run([Ask(Draw(temperature=1.0, seed=i, top_logprobs=0), i, loud) for i in range(6)])
    assert out.tokens.tolist() == list(range(6))
    assert out.ranks.tolist() == [6, 4, 3, 1, 2, 5]
    np.testing.assert_allclose(np.exp(out.logprobs).sum(), 1, rtol=1e-6)
    given.logits = logits * np.nan
    out = given.run([Ask(Draw(top_logprobs=3), 2)])
    assert (out.tokens[0], out.status[0], out.ranks[0], out.top_ids[0, 0]) == (2, Status.NOT_FINITE, 0, -1)


def test_one_sample_of_a_sequence_is_relayed(backend: Backend) -> None:
    """A row takes what the last sample with `relay` brought, drawn or given: not what was scored since, nor what other
    rows of its sequence drew in the same step."""
    x, table = Buffer("x", 32), np.eye(32, dtype=np.float32)
    recorder = Recorder()
    recorder.add(Embed(floats(table).on(backend), x))
    recorder.add(Head(x, Norm(backend.vector(np.ones(32, np.float32)), 1e-5), floats(table).on(backend)))
    recorder.add(Sample(32))
    executable = backend.load(recorder.finish(), [backend.pool(NO_KV, 1)], BackendLimits(3, 3, 1))
    step = StepDescriptor(3, 1, 3, 1)

    def run(tokens: Sequence[int], relayed: int | None, target: int = -1) -> list[int]:
        """Each row's token, which is its own again, or `target`."""
        step.clear()
        row = step.add_sequence(tokens, 0, [0], 0)
        for i in range(len(tokens)):
            step.add_sample(row + i, Draw(), target=target, relay=i == relayed)
        return executable.run(step).tokens.tolist()

    assert run([5], 0) == [5]
    assert run([9], None, target=7) == [7]
    assert run([RELAY], 0) == [5]
    for relayed in (1, 0, 2):
        tokens = [relayed + 10, relayed + 13, relayed + 16]
        assert run(tokens, relayed) == tokens
        assert run([RELAY], None) == [tokens[relayed]]
    assert run([9], 0, target=7) == [7]
    assert run([RELAY], None) == [7]


@pytest.mark.parametrize("execution", ["replay", "eager"])
def test_a_host_acts_at_every_stop(native: Native, execution: str) -> None:
    rng = np.random.default_rng(1)
    logits, asks = random_logits(rng, 100), [random_ask(rng, 100) for _ in range(20)]
    expected = Given(oracle(), logits, 20)
    given = Given(native(execution=execution), logits, 20)
    assert given.run(asks).tokens.tolist() == expected.run(asks).tokens.tolist()
    assert given.stops == expected.stops == [BEFORE_HEAD, BEFORE_SAMPLE]
    assert not given.executable.run(given.step).tokens[[ask.target < 0 and ask.edits is None for ask in asks]].any(), \
        "without a host the head's zeros stand"


@pytest.mark.parametrize(("scale", "offset"), [(1e-3, 0), (1, 0), (1e3, 0), (1e37, 0), (3, -1e6), (1, 1e7)])
def test_noise_left_out_would_not_have_won(native: Native, isa: str, scale: float, offset: float) -> None:
    """Against all noise computed, in order of ids or of values: close races, ties by rounding, ids far below, blocks
    without any in reach."""
    rng = np.random.default_rng(6)
    logits = np.stack([rng.standard_normal(200), -rng.exponential(1, 200), np.repeat([0, -30], 100), np.zeros(200)])
    logits = (logits * scale + offset).astype(np.float32)
    draws = [Draw(i % 4, 1.0, top_k=150 * (i % 7 > 0), seed=i * 0x9E3779B97F4A7C15 & 2**64 - 1) for i in range(80)]
    gumbel = native(isa).library.drut_gumbel
    expected = []
    for d in draws:
        noise = np.array([gumbel(d.seed, d.row + 1, 0, i, 0) for i in range(200)], np.float32)
        if d.top_k:
            noise[np.argsort(-logits[d.row], kind="stable")[d.top_k :]] = -np.inf
        expected.append(int((logits[d.row] + noise).argmax()))
    assert Given(native(isa), logits, 80).run([Ask(d) for d in draws]).tokens.tolist() == expected


def test_too_many_edits_or_logprobs_are_errors() -> None:
    step = StepDescriptor(1, 1, 3, 1, edits=3)
    step.add_sequence([0], 0, [0], 0)
    step.add_sample(0, Draw(), edits=edits((5, 0.5, 2, 1), (6, -1.0, 0, 0)))
    before = step.buffer.copy()
    with pytest.raises(ValueError, match="full"):
        step.add_sample(0, Draw(), edits=edits((7, 0.0, 0, 0), (8, 0.0, 0, 0)))
    with pytest.raises(ValueError, match="21 top logprobs"):
        step.add_sample(0, dataclasses.replace(Draw(), top_logprobs=21))
    assert (step.buffer == before).all()
    step.add_sample(0, Draw(), edits=edits((7, 0.0, 0, 0)))
    assert [step[name][:2].tolist() for name in ("edit_first", "edit_count")] == [[0, 2], [2, 1]]
    assert step["edit_id"].tolist() == [5, 6, 7]
    step.clear()
    step.add_sample(0, Draw(), edits=edits((9, 0.0, 0, 0)))
    assert (step["edit_first"][0], step["edit_id"][0]) == (0, 9)


def layers(backend: Backend, count: int) -> Plan:
    """A plan with as many operations as a model of `count` layers."""
    x, inner = Buffer("x", 32), Buffer("inner", 32)
    weight, norm = floats(np.ones((32, 32))).on(backend), Norm(backend.vector(np.ones(32, np.float32)), 1e-5)
    recorder = Recorder()
    recorder.add(Embed(weight, x))
    for layer in range(count):
        for _ in range(2):
            recorder.add(GateUp(layer=layer, x=x, norm=norm, gate=weight, up=weight, out=inner))
            recorder.add(Project(layer, inner, weight, x))
        recorder.add(Project(layer, x, weight, inner))
    recorder.add(Head(x, norm, weight))
    recorder.add(Sample(32))
    return recorder.finish()


@pytest.mark.parametrize("threads", [1, 2])
def test_replaying_thirty_empty_layers_takes_microseconds(native: Native, threads: int) -> None:
    backend = native(threads=threads)
    executable = backend.load(layers(backend, 30), [backend.pool(NO_KV, 1)], BackendLimits(1, 1, 1))
    assert isinstance(executable, NativeExecutable)
    step = StepDescriptor(1, 1, 1, 1)
    step.add_sample(step.add_sequence([3], 0, [0], 0), Draw(top_logprobs=1))
    out = executable.run(step)
    before = [field.copy() for field in out]
    out.logprobs[:] = 1.0  # what an emptied operation must not touch
    best = np.inf
    for _ in range(300):  # other work on the machine may disturb some
        started = time.perf_counter()
        executable.run_empty(step)
        best = min(best, time.perf_counter() - started)
        if best < 100e-6:
            break
    assert best < 100e-6
    assert out.logprobs[0] == 1.0
    for field, expected in zip(executable.run(step), before, strict=True):
        assert field.tolist() == expected.tolist()
