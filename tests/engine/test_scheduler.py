"""Who runs, who waits and why, and who gives way."""

from __future__ import annotations

import pytest

from drut.engine.engine import Engine
from drut.engine.request.params import SamplingParams
from drut.engine.request.request import Request
from drut.engine.schedule.prefill_pacer import MIN, PLAIN_EVERY
from drut.engine.schedule.work import ScheduledRequest
from drut.errors import RequestError
from drut.kernels.cost import StepShape
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import PAGE_TOKENS
from tests.engine.testbed import (
    VOCAB,
    Log,
    check_answer,
    check_idle,
    finish_all,
    make_engine,
    make_log,
    predicting,
    step,
    submit,
    text,
)

P = PAGE_TOKENS


def first_tokens(engine: Engine, requests: list[Request]) -> list[Request]:
    """The requests by when they said their first token."""
    order: list[Request] = []
    while engine.busy:
        for update in engine.step():
            if update.token is not None and update.request not in order:
                order.append(update.request)
    return [r for r in order if r in requests]


def test_first_come_is_first_served() -> None:
    engine = make_engine(seqs=1)
    requests = [submit(engine, text(i, 9 - i), priority=-i) for i in range(4)]
    assert first_tokens(engine, requests) == requests


@pytest.mark.parametrize("continuous", [True, False])
def test_without_continuous_batching_nobody_joins_a_batch(continuous: bool) -> None:
    engine = make_engine(seqs=2, continuous=continuous, burst=4)
    long, short, later = (submit(engine, text(i, 5), max_tokens=n) for i, n in enumerate((20, 2, 2)))
    while short.finish_reason is None:
        engine.step()
    assert long.finish_reason is None
    engine.step()
    assert (later in engine.scheduler.running) == continuous
    finish_all(engine)
    for request in (long, short, later):
        check_answer(engine, request)
    assert (later.finished_at < long.finished_at) == continuous  # type: ignore[operator]
    check_idle(engine)


def test_a_preempted_request_comes_back_to_its_batch() -> None:
    engine = make_engine(seqs=4, pages=5, continuous=False)
    first, second = (submit(engine, text(i, P), max_tokens=2 * P) for i in range(2))
    engine.step()
    later = submit(engine, text(9, P), max_tokens=1)
    finish_all(engine)
    assert second.why.preemptions
    assert later.finished_at > first.finished_at  # type: ignore[operator]
    for request in (first, second, later):
        check_answer(engine, request)


def test_a_batch_begins_with_those_who_can_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(seqs=1, continuous=False)
    monkeypatch.setattr(engine.scheduler.policy._inner, "order", lambda waiting, running, cache: list(waiting)[::-1])
    choices = engine.submit(text(0, 2 * P), SamplingParams(max_tokens=2, n=3, seed=1, ignore_eos=True, temperature=0))
    finish_all(engine)
    for choice in choices:
        check_answer(engine, choice)


def test_priority_goes_by_number_and_then_by_arrival() -> None:
    engine = make_engine(seqs=1, policy="priority")
    a, b, c, d = (submit(engine, text(i, 5), priority=p) for i, p in enumerate((2, 1, 2, 1)))
    assert first_tokens(engine, [a, b, c, d]) == [b, d, a, c]


def test_longest_prefix_goes_by_what_is_cached() -> None:
    engine = make_engine(seqs=1, policy="longest-prefix")
    known = text(0, 4 * P)
    submit(engine, known)
    finish_all(engine)
    none, some, most = (submit(engine, known[:n] + text(n + 1, 40)) for n in (0, 2 * P, 4 * P))
    assert first_tokens(engine, [none, some, most]) == [most, some, none]


@pytest.mark.parametrize("policy", ["longest-prefix", "priority", "fcfs"])
def test_nothing_starves(policy: str) -> None:
    """Beside a stream of requests that the policy likes better, an old one is answered in a bounded number of steps.

    Priority is strict: there the stream is finite, and all is answered once it has ended.
    """
    engine = make_engine(seqs=1, policy=policy, pages=64)
    known = text(0, 3 * P)
    submit(engine, known, max_tokens=1)
    finish_all(engine)
    old = submit(engine, text(1, 8), priority=1, max_tokens=1)
    arrivals = 200
    for n in range(2000):
        if arrivals:
            arrivals -= 1
            submit(engine, known + text(n + 2, 3), max_tokens=1)
        engine.step()
        if old.finish_reason:
            break
    assert old.finish_reason == "length"
    assert n <= {"fcfs": 1, "longest-prefix": 70, "priority": 205}[policy]


def test_reasons_for_waiting_show() -> None:
    engine = make_engine(seqs=2, pages=6, tokens=20)
    long, short = submit(engine, text(0, 30), max_tokens=30), submit(engine, text(1, 4))
    engine.step()
    assert short.why.waited_for == "the step's budget is spent"
    engine.step()
    third = submit(engine, text(2, 4))
    engine.step()
    assert third.why.waited_for == "all 2 sequences are taken"
    engine.abort(short)
    engine.abort(third)
    large = submit(engine, text(3, 4 * P))
    engine.step()
    assert large.why.waited_for == "it needs 5 pages of the KV cache, 4 can be had"
    finish_all(engine)
    assert long.why.waited_for == ""
    for request in (long, large):
        check_answer(engine, request)
    check_idle(engine)


def test_those_that_may_be_passed_say_why_too() -> None:
    engine = make_engine(tokens=16, overlap=True)
    first, second = engine.submit(text(0, 50), SamplingParams(max_tokens=9, n=2, ignore_eos=True, temperature=0))
    passing = submit(engine, text(1, 3))
    engine.step()
    assert second.why.waited_for == "the first choice computes their prompt"
    finish_all(engine)
    assert passing.why.steps > 0
    again = submit(engine, text(2, 3))
    for _ in range(2):
        engine.step()
    engine.scheduler.preempt(again)
    engine.step()
    assert again.why.waited_for == "its last token is in flight"
    finish_all(engine)
    for request in (first, second, passing, again):
        check_answer(engine, request)
    engine.close()


def test_those_behind_one_that_does_not_fit_wait_too() -> None:
    """Or a large request would wait for ever beside a stream of small ones."""
    engine = make_engine(pages=6)
    running = submit(engine, text(0, 2 * P), max_tokens=20)
    engine.step()
    large, small = submit(engine, text(1, 4 * P)), submit(engine, text(2, 3))
    while running.finish_reason is None:
        engine.step()
        assert small.why.admitted_at is None
    finish_all(engine)
    assert large.why.admitted_at is not None
    assert small.why.admitted_at is not None
    assert large.why.admitted_at <= small.why.admitted_at


@pytest.mark.parametrize(("prompt", "room"), [(64, 64), (65, 64), (500, 64)])
def test_what_can_never_fit_is_refused_at_once(prompt: int, room: int) -> None:
    engine = make_engine(pages=room // P)
    with pytest.raises(RequestError, match=f"the prompt has {prompt} tokens; the KV cache of {room} leaves no room"):
        submit(engine, text(0, prompt))
    with pytest.raises(RequestError, match="the context of 32 leaves no room"):
        submit(make_engine(context=32), text(0, 32))
    assert not engine.busy


def test_an_answer_runs_to_the_room() -> None:
    engine = make_engine(pages=4)
    request = submit(engine, text(0, 63), max_tokens=1000)
    other = submit(engine, text(1, 50), max_tokens=1000)
    finish_all(engine)
    assert (len(request.tokens), request.finish_reason) == (64, "length")
    assert (len(other.tokens), other.finish_reason) == (64, "length")


@pytest.mark.parametrize("tokens", [[], [VOCAB], [-1], [1, 2, VOCAB + 5], [1.5], [[1], [2]], [1 << 70], [1, [2]], ["a"],
                                    [None], [True]])
def test_wrong_ids_are_refused(tokens: list[object]) -> None:
    engine = make_engine()
    with pytest.raises(RequestError):
        submit(engine, tokens)  # type: ignore[arg-type]
    assert not engine.busy
    check_idle(engine)


@pytest.mark.parametrize("params", [{"logit_bias": {VOCAB: 1.0}}, {"stop_token_ids": (VOCAB,)},
                                    {"stop_token_ids": (3, 99)}])
def test_ids_in_params_are_checked(params: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=f"token id .* is outside the vocabulary of {VOCAB}"):
        submit(make_engine(), [1], **params)


@pytest.mark.parametrize("chunk", [1, 7, 0])
def test_prompts_are_chunked_as_told(chunk: int) -> None:
    engine = make_engine(chunk=chunk, tokens=64)
    request = submit(engine, text(0, 50), max_tokens=1)
    assert finish_all(engine) == (-(-50 // chunk) if chunk else 1)
    check_answer(engine, request)


def slow_prompts(engine: Engine) -> None:
    """To the pacer a row takes as long as all else in a step."""
    engine.scheduler.pacer.predictor = predicting(once=1.0, row=1.0)


def test_a_long_prompt_rides_along_in_pieces() -> None:
    """With chunks by measurement, a decoding stream says a token each step while a prompt is computed."""
    engine = make_engine(pages=64, tokens=64)
    slow_prompts(engine)
    stream = submit(engine, text(0, 4), max_tokens=200)
    engine.step()
    long = submit(engine, text(1, 300), max_tokens=1)
    steps = 0
    while long.finish_reason is None:
        said = len(stream.output_ids)
        engine.step()
        assert len(stream.output_ids) == said + 1
        steps += 1
    assert steps == 300 // MIN + 300 // MIN // PLAIN_EVERY


def test_prompts_that_come_together_share_what_may_ride_along() -> None:
    engine = make_engine(pages=64, tokens=64)
    slow_prompts(engine)
    submit(engine, text(0, 4), max_tokens=200)
    engine.step()
    prompts = [submit(engine, text(i, 42), max_tokens=1) for i in range(1, 4)]
    schedule, beside = engine.scheduler.schedule, []

    def spied(*drafts: object) -> list[ScheduledRequest]:
        work = schedule()
        beside.append([w.rows for w in work if not w.decodes])
        return work

    engine.scheduler.schedule = spied  # type: ignore[method-assign]
    while any(p.finish_reason is None for p in prompts):
        engine.step()
    assert all(sum(rows) <= MIN for rows in beside)
    assert any(len(rows) > 1 for rows in beside)


def test_who_computes_its_own_answer_again_is_no_stream() -> None:
    """A preempted request comes back in whole steps, not paced as if it kept itself from decoding."""
    engine = make_engine(pages=64, tokens=64, prefix_cache=False)
    slow_prompts(engine)
    request = submit(engine, text(0, 10), max_tokens=400)
    while len(request.output_ids) < 300:
        engine.step()
    engine.scheduler.preempt(request)
    steps = 0
    while request.computed < 310:
        engine.step()
        steps += 1
    assert steps <= -(-310 // 64) + 1


def test_a_stream_that_waits_for_its_own_token_paces_nobody() -> None:
    engine = make_engine(pages=64, tokens=64, overlap=True)
    slow_prompts(engine)
    submit(engine, text(0, 4), max_tokens=200, frequency_penalty=0.5)
    for _ in range(4):
        engine.step()
    long = submit(engine, text(1, 300), max_tokens=1)
    steps = 0
    while long.finish_reason is None:
        engine.step()
        steps += 1
    assert steps < 300 / MIN / 2


def test_whole_prompts_wait_for_a_step_with_room() -> None:
    engine = make_engine(chunk=0, context=128, tokens=128, pages=32)
    stream = submit(engine, text(0, 4), max_tokens=20)
    engine.step()
    whole = submit(engine, text(1, 127), max_tokens=1)
    finish_all(engine)
    assert whole.why.steps == 1
    check_answer(engine, stream)
    check_answer(engine, whole)


def test_the_newest_of_the_lowest_rank_gives_way() -> None:
    engine = make_engine(pages=13, policy="priority", tokens=200)
    ranks = (0, 1, 1, 0)
    requests = [submit(engine, text(i, 2 * P - 2), max_tokens=40, priority=p) for i, p in enumerate(ranks)]
    log = make_log()
    while not engine.preemptions:
        step(engine, log)
    assert [r.why.preemptions for r in requests] == [0, 0, 1, 0]
    finish_all(engine, log)
    for request in requests:
        check_answer(engine, request, log[request])
    assert requests[0].why.preemptions == 0
    check_idle(engine)


def test_the_oldest_is_never_preempted() -> None:
    """So each request gets to be the oldest, and is answered."""
    engine = make_engine(pages=8, tokens=64)
    requests = [submit(engine, text(i, 20), max_tokens=60) for i in range(8)]
    while engine.busy:
        oldest = min((r for r in requests if r.finish_reason is None), key=lambda r: r.order)
        before = oldest.why.preemptions
        engine.step()
        assert oldest.why.preemptions == before
    assert engine.preemptions > 0
    for request in requests:
        check_answer(engine, request)


@pytest.mark.parametrize("seqs", [1, 2, 3])
def test_prompt_scores_take_samples_a_step_has(seqs: int) -> None:
    """There are as many samples in a step as sequences; scoring goes on in as many steps as it needs."""
    engine = make_engine(seqs=seqs)
    log: Log = make_log()
    requests = [submit(engine, text(i, n), prompt_logprobs=1, logprobs=0) for i, n in enumerate((1, 2, 9, 40))]
    finish_all(engine, log)
    for request in requests:
        check_answer(engine, request, log[request])
        assert len(log[request].prompt_scored) == request.prompt_tokens - 1


def test_a_large_number_of_edits_fits() -> None:
    """All ids of long prompts are penalized at once, more than a descriptor has room for at first."""
    engine = make_engine(pages=256, seqs=64, tokens=256)
    bias = {i: float(i % 7) - 3 for i in range(VOCAB)}
    requests = [submit(engine, [i % VOCAB], logit_bias=bias, frequency_penalty=0.5) for i in range(64)]
    finish_all(engine)
    for request in requests:
        check_answer(engine, request)


@pytest.mark.parametrize("overlap", [False, True])
def test_no_row_is_computed_for_the_last_token(overlap: bool) -> None:
    """Not even where the step after the last one is scheduled before that token is known."""
    engine = make_engine(overlap=overlap)
    submit(engine, text(0, 20), max_tokens=6)
    finish_all(engine)
    assert engine.runner.executable.rows == 20 + 5  # type: ignore[attr-defined]
    engine.close()


def test_what_a_step_costs_is_counted_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[StepShape] = []
    count = StepDescriptor.shape
    monkeypatch.setattr(StepDescriptor, "shape", lambda step: counted.append(count(step)) or counted[-1])
    engine = make_engine()
    assert engine.runner.last_shape == StepShape(0, 0, 0, 0)
    counted.clear()
    submit(engine, text(0, 20), max_tokens=2)
    engine.step()
    assert counted == []
    assert engine.runner.last_shape == StepShape(20, 1, 20, 210, ((20, 20),))
    engine.step()
    assert engine.runner.last_shape == StepShape(1, 1, 21, 21, ((1, 21),))
