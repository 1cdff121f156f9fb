"""Drafts change how many steps an answer takes, and nothing else."""

from __future__ import annotations

import pytest

from tests.engine.testbed import Guesser, check_answer, check_idle, finish_all, make_engine, make_log, submit, text


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("errs", [0.0, 0.3, 1.0])
def test_answers_are_the_same_whatever_is_guessed(errs: float, overlap: bool) -> None:
    guesser = Guesser(errs)
    engine = make_engine(drafter=guesser, samples=64, overlap=overlap, canary=True, burst=4)
    log = make_log()
    requests = [submit(engine, text(i, 20), max_tokens=30, seed=i, logprobs=i % 2 or None) for i in range(4)]
    for request in requests:
        log[request]
        guesser.learn(engine, request)
    steps = finish_all(engine, log)
    for request in requests:
        check_answer(engine, request, log[request])
    check_idle(engine)
    assert guesser.drafted > 0
    assert guesser.answers == {}, "all were forgotten"
    if errs == 0.0:
        assert guesser.accepted == guesser.drafted
        assert steps < 25 * (1 + overlap), "about six tokens a step"
    if errs == 1.0:
        assert guesser.accepted < guesser.drafted / 5


def test_others_keep_their_rows_however_much_is_guessed() -> None:
    guesser = Guesser(0.0, drafts=50)
    engine = make_engine(drafter=guesser, samples=6, seqs=4)
    requests = [submit(engine, text(i, 5), max_tokens=20, seed=i) for i in range(4)]
    for request in requests:
        guesser.learn(engine, request)
    while not all(r.decoding for r in requests):
        engine.step()
    lengths = [len(r.output_ids) for r in requests]
    engine.step()
    assert all(len(r.output_ids) > length for r, length in zip(requests, lengths, strict=True))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("params", [
    {"frequency_penalty": 0.5}, {"repetition_penalty": 1.3, "min_tokens": 9, "ignore_eos": False},
    {"logit_bias": {5: 1.5, 9: -2.25}, "min_tokens": 25, "stop_token_ids": tuple(range(10, 30))},
    {"presence_penalty": 1.0, "logprobs": 3, "min_tokens": 3, "ignore_eos": False}], ids=str)
def test_logits_processors_see_the_drafts(params: dict[str, object], overlap: bool) -> None:
    guesser = Guesser(0.1)
    engine = make_engine(drafter=guesser, samples=64, overlap=overlap)
    log = make_log()
    requests = [submit(engine, text(i, 5), max_tokens=30, seed=i, **params) for i in range(4)]
    for request in requests:
        log[request]
        guesser.learn(engine, request)
    finish_all(engine, log)
    for request in requests:
        check_answer(engine, request, log[request])
    assert guesser.accepted > 10


def test_no_request_is_preempted_in_favour_of_drafts() -> None:
    guesser = Guesser(0.0)
    engine = make_engine(drafter=guesser, samples=64, pages=3)
    log = make_log()
    requests = [submit(engine, text(i, 14), max_tokens=10, seed=i) for i in range(2)]
    for request in requests:
        guesser.learn(engine, request)
    engine.step()
    assert [r.num_output_tokens for r in requests] == [1, 1]
    engine.step()
    assert engine.preemptions == 0, "the third page is for the drafts of one; the other has a row without"
    assert [r.num_output_tokens for r in requests] == [7, 2]
    finish_all(engine, log)
    for request in requests:
        check_answer(engine, request)
