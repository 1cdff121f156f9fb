"""Masks of a step: a sample that is drawn before its mask says what it would have said under it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from drut.constrain import Constraint, ReasoningSpec
from drut.constrain.grammar_matcher import GrammarMatcher, Mask
from drut.engine.request.params import FilledParams
from drut.engine.step.grammar_masks import ConstrainedRow, GrammarMasks, MaskChain
from drut.errors import RequestError
from drut.kernels.backend import Backend, BackendLimits, Executable, Host
from drut.kernels.descriptor import Edits, StepDescriptor, mask_words
from drut.kernels.native import library
from drut.kernels.native.backend import NativeBackend
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.numpy.executable import NumpyExecutable
from drut.kernels.ops import F32, Buffer, Embed, Head, Norm, Sample
from drut.kernels.output import Status
from drut.kernels.pending import Pending
from drut.kernels.plan import BEFORE_HEAD, BEFORE_SAMPLE, Recorder
from tests.constrain.walking import Walker, at_random, walker_over
from tests.engine.models import write_bytes_model
from tests.kernels.rig import NO_KV, floats

SAMPLES = 6
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "bcd": {"enum": ["red", "green"]}},
          "required": ["a", "bcd"], "additionalProperties": False}
CONSTRAINTS = (Constraint.json_schema(OBJECT), Constraint.regex("[a-f]{2,9}x?"), Constraint.regex("(.|\n)*"),
               Constraint.choice(["red", "green", "gray"]), Constraint.regex("a"))
REASONINGS = (None, None, ReasoningSpec("<t>", "/>"), ReasoningSpec("<t>", "/>", begun=True))


class Ask(NamedTuple):
    """A sample, and the way that its guide has come."""

    params: FilledParams
    edits: Edits | None
    way: tuple[int, ...]
    logits: F32


class Given(Executable):
    """Samples from logits that are put in place."""

    def __init__(self, backend: Backend, vocab: int) -> None:
        recorder, x = Recorder(), Buffer("x", 32)
        recorder.add(Embed(floats(np.zeros((1, 32))).on(backend), x))
        recorder.stop(BEFORE_HEAD)
        recorder.add(Head(x, Norm(backend.vector(np.zeros(32, np.float32)), 1.0),
                          floats(np.zeros((vocab, 32))).on(backend)))
        recorder.stop(BEFORE_SAMPLE)
        recorder.add(Sample(vocab))
        self.inner = backend.load(recorder.finish(), [backend.pool(NO_KV, 1)], BackendLimits(SAMPLES, SAMPLES, SAMPLES))
        self.step = StepDescriptor(rows=SAMPLES, seqs=SAMPLES, samples=SAMPLES, blocks=SAMPLES, edits=SAMPLES * vocab,
                                   masks=SAMPLES * mask_words(vocab))
        self.rows: Sequence[F32] = ()
        self.redrawn = 0

    def launch(self, step: StepDescriptor, host: Host | None = None) -> Pending:
        def at(stop: str) -> None:
            if host is not None:
                host(stop)
            if stop == BEFORE_SAMPLE:
                self.inner.logits(len(self.rows))[:] = self.rows

        return self.inner.launch(step, at)

    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        self.redrawn += len(samples)
        self.inner.redraw(step, samples)

    def logits(self, count: int) -> F32:
        return self.inner.logits(count)


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    with walker_over(write_bytes_model(tmp_path_factory.mktemp("masks"))) as walker:
        yield walker


@pytest.fixture(scope="module", params=["numpy", "native"])
def given(request: pytest.FixtureRequest, walker: Walker) -> Iterator[Given]:
    if request.param == "native" and library.load() is None:
        pytest.skip("the native kernels are not built")
    backend = NumpyBackend() if request.param == "numpy" else NativeBackend(1)
    yield Given(backend, walker.vocab)
    backend.close()


@pytest.fixture(scope="module")
def maker(walker: Walker) -> Iterator[GrammarMasks]:
    maker = GrammarMasks(walker.vocab)
    yield maker
    maker.close()


def some_logits(dice: random.Random, vocab: int) -> F32:
    """Plain ones, many ties, all the same, next to the largest float, and some that are no numbers."""
    rng = np.random.default_rng(dice.getrandbits(32))
    row = rng.standard_normal(vocab) * dice.choice([0.1, 3.0, 3.0, 30.0, 1e37])
    match dice.randrange(8):
        case 0 | 1:
            row = np.round(row)
        case 2:
            row[:] = dice.choice([-3.0, 0.0, 1e30])
        case 3:
            row[dice.randrange(vocab)] = dice.choice([np.nan, np.inf, -np.inf])
    return row.astype(np.float32)


def some_edits(dice: random.Random, vocab: int, ends: frozenset[int]) -> Edits | None:
    ids = sorted({*dice.sample(range(vocab), dice.choice([1, 5, vocab])), *ends})
    bias = [dice.choice([0.0, 5.0, -100.0, 100.0]) if i not in ends else dice.choice([-np.inf, 0.0, 100.0])
            for i in ids]
    counts = [dice.choice([0, 0, 1, 5]) for _ in ids]
    seen = [int(count > 0 or dice.random() < 0.3) for count in counts]
    made = Edits(np.array(ids, np.int32), np.array(bias, np.float32), np.array(counts, np.int32),
                 np.array(seen, np.int32))
    return dice.choice([None, made])


def some_params(dice: random.Random, seed: int) -> FilledParams:
    return FilledParams(
        temperature=dice.choice([0.0, 0.3, 1.0, 1.0, 2.0, 100.0, 1e-6, 1e-37, 1e-42]), seed=seed,
        repetition_penalty=dice.choice([1.0, 1.3, 0.01, 100.0]), presence_penalty=dice.choice([0.0, 1.0, -2.0]),
        frequency_penalty=dice.choice([0.0, 1.0, -2.0]), logprobs=dice.choice([None, 0, 5]),
        ignore_eos=dice.random() < 0.2, constraint=dice.choice(CONSTRAINTS), reasoning=dice.choice(REASONINGS))


def guide_of(walker: Walker, params: FilledParams) -> GrammarMatcher:
    assert params.constraint is not None
    return walker.guide(params.constraint, params.reasoning, ignore_eos=params.ignore_eos)


def some_ask(walker: Walker, dice: random.Random, seed: int) -> Ask:
    params = some_params(dice, seed)
    guide, choose, way = guide_of(walker, params), at_random(seed, walker.eos), list[int]()
    for _ in range(dice.choice([0, 1, 3, 12])):
        if guide.over:
            break
        way.append(choose(walker.allowed(guide)))
        guide.advance(way[-1])
    return Ask(params, some_edits(dice, walker.vocab, walker.eos), tuple(way), some_logits(dice, walker.vocab))


def run(given: Given, maker: GrammarMasks, walker: Walker, asks: Sequence[Ask],
        optimistic: bool) -> tuple[object, ...]:
    """All that a step says, and where its guides are then."""
    step, guided = given.step, {}
    step.clear()
    for slot, ask in enumerate(asks):
        row = step.add_sequence([0], len(ask.way), [0], slot)
        mask = step.add_mask(walker.vocab)
        sample = step.add_sample(row, ask.params, ask.params.seed or 0, edits=ask.edits,
                                 mask=-1 if optimistic else mask, relay=True)
        guide = guide_of(walker, ask.params)
        for token in ask.way:
            guide.advance(token)
        guided[sample] = ConstrainedRow(guide, len(ask.way), mask, optimistic)
    given.rows = [ask.logits for ask in asks]
    before = step["mask"][: len(asks)].tolist()
    out = maker.run(given, step, guided)
    assert step["mask"][: len(asks)].tolist() == before
    guides = [who.guide for who in guided.values()]
    return (tuple(field.tobytes() for field in out), out.status.tolist(),
            [(g.taken, g.ended, str(g.failure), g.forced(g.taken)) for g in guides], relay(given, len(asks)))


def relay(given: Given, count: int) -> list[int]:
    """What the sequences go on with."""
    inner = given.inner
    kept: NDArray[np.int32] = inner.state.relay if isinstance(inner, NumpyExecutable) else inner._relay
    return [int(token) for token in kept[:count]]


def test_drawn_first_is_as_masked_first(given: Given, maker: GrammarMasks, walker: Walker) -> None:
    """Whatever is asked for beside the grammar and whatever the logits are."""
    seen: set[int] = set()
    given.redrawn = 0
    for seed in range(40):
        dice = random.Random(seed)
        asks = [some_ask(walker, dice, SAMPLES * seed + i) for i in range(dice.choice([1, SAMPLES]))]
        optimistic = run(given, maker, walker, asks, optimistic=True)
        assert optimistic == run(given, maker, walker, asks, optimistic=False), seed
        seen |= set(optimistic[1])  # type: ignore[call-overload]
    assert given.redrawn > 30
    assert seen == set(Status)


def test_an_infinite_logit_may_be_one_that_the_mask_takes_out(given: Given, maker: GrammarMasks,
                                                              walker: Walker) -> None:
    """A penalty raises a logit beyond the largest float: with that id there is nothing to draw, without it there is."""
    logits = np.zeros(walker.vocab, np.float32)
    logits[ord("z")] = 1e38
    once = np.ones(1, np.int32)
    edits = Edits(once * ord("z"), np.zeros(1, np.float32), once, once)
    params = FilledParams(repetition_penalty=0.01, constraint=Constraint.regex("[a-f]x"), temperature=0)
    asks = [Ask(params, edits, (), logits), Ask(replace(params, constraint=Constraint.regex("z+")), edits, (), logits)]
    optimistic = run(given, maker, walker, asks, optimistic=True)
    assert optimistic[1] == [Status.DRAWN, Status.NONE_LEFT]
    assert optimistic == run(given, maker, walker, asks, optimistic=False)


def test_a_grammar_that_breaks_off_is_found_where_its_mask_is_made(
        given: Given, maker: GrammarMasks, walker: Walker, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other sample hears of it."""
    real = GrammarMatcher.fill

    def failing(guide: GrammarMatcher, mask: Mask) -> None:
        guide.failure = RequestError("too complex")
        real(guide, mask)

    params = FilledParams(constraint=Constraint.regex("[a-f]x"), temperature=0)
    low, high = np.zeros(walker.vocab, np.float32), np.zeros(walker.vocab, np.float32)
    low[ord("z")] = high[ord("b")] = 1.0
    monkeypatch.setattr(GrammarMatcher, "fill", failing)
    optimistic = run(given, maker, walker, [Ask(params, None, (), low), Ask(params, None, (), high)], optimistic=True)
    assert optimistic[2:] == ([(1, None, "too complex", ()), (1, 2, "None", (ord("x"),))], [ord("z"), ord("b")])


def test_no_mask_is_filled_any_more_where_one_failed(maker: GrammarMasks) -> None:
    """Its room is the next step's soon."""
    filled = list[Mask]()

    class Slow:
        def fill_along(self, masks: Sequence[Mask], drafts: Sequence[int]) -> None:
            time.sleep(0.05)
            filled.extend(masks)

    class Broken:
        def fill_along(self, masks: Sequence[Mask], drafts: Sequence[int]) -> None:
            raise OSError("made to fail")

    mask = np.zeros(1, np.int32)
    for guides, count in (((Broken(), Slow()), 1), ((Slow(), Broken()), 2)):
        with pytest.raises(OSError, match="made to fail"):
            maker._fill([MaskChain(guide, [mask], ()) for guide in guides])  # type: ignore[misc]
        assert len(filled) == count
