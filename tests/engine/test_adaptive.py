"""With a controller, requests draft where it pays, and run as if there were no speculation where it does not."""

from __future__ import annotations

import pytest

from drut.engine.engine import Engine
from drut.speculate.controller import SpeculationController
from tests.engine.scripted import Script, right, wrong
from tests.engine.testbed import (
    Guesser,
    check_answer,
    check_idle,
    finish_all,
    make_engine,
    make_log,
    predicting,
    submit,
    text,
)

TOKENS, REQUESTS = 200, 3


def engine_of(guesser: Guesser, overlap: bool) -> Engine:
    """Predicts that a row costs little compared with a step."""
    controller = SpeculationController(predicting(once=1e-2, row=1e-4), 8, overlap=overlap)
    return make_engine(drafter=guesser, controller=controller, samples=64, overlap=overlap, burst=4, canary=True)


def run(script: Script, overlap: bool) -> tuple[Guesser, Engine]:
    guesser = Guesser(0.0, script=script)
    engine, log = engine_of(guesser, overlap), make_log()
    requests = [submit(engine, text(i, 20), max_tokens=TOKENS, seed=i, logprobs=i % 2 or None) for i in range(REQUESTS)]
    for request in requests:
        log[request]
        guesser.learn(engine, request)
    finish_all(engine, log)
    for request in requests:
        check_answer(engine, request, log[request])
    check_idle(engine)
    assert guesser.answers == {}
    return guesser, engine


@pytest.mark.parametrize("overlap", [False, True])
def test_good_drafts_are_verified(overlap: bool) -> None:
    guesser, engine = run(right, overlap)
    assert guesser.accepted == guesser.drafted > TOKENS
    assert engine.runner.executable.steps < TOKENS / 2


@pytest.mark.parametrize("overlap", [False, True])
def test_bad_drafts_are_soon_left_alone(overlap: bool) -> None:
    """A burst of four steps is one launch: as good as all steps are in bursts, where there are some."""
    guesser, engine = run(wrong, overlap)
    assert guesser.drafted < 60
    assert engine.meter.steps < TOKENS + 20


def test_drafts_that_become_good_are_found_without_a_verification() -> None:
    good = False

    def later(dice, drafts, vocab):
        return right(dice, drafts, vocab) if good else wrong(dice, drafts, vocab)

    guesser = Guesser(0.0, script=later)
    engine = engine_of(guesser, overlap=True)
    request = submit(engine, text(0, 20), max_tokens=2 * TOKENS)
    guesser.learn(engine, request)
    while request.num_output_tokens < TOKENS:
        engine.step()
    before, good = guesser.accepted, True
    finish_all(engine)
    check_answer(engine, request)
    assert before == 0
    assert guesser.accepted > TOKENS / 2
