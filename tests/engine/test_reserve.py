"""What is kept free at admission: nothing of the answer, a quantile of it, or all it may take."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.engine.schedule.reserve import Reserve
from drut.kernels.kv import PAGE_TOKENS
from tests.engine.testbed import check_answer, check_idle, finish_all, make_engine, make_log, submit, text

ASKS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 90)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(ASKS, st.integers(9, 20), st.sampled_from(["fcfs", "aging"]), st.booleans())
@pytest.mark.slow
def test_what_is_reserved_up_to_the_limit_never_runs_out(asks: list[tuple[int, int]], pages: int, policy: str,
                                                         prefix_cache: bool) -> None:
    engine = make_engine(pages=pages, policy=policy, reserve_quantile=1.0, prefix_cache=prefix_cache)
    log = make_log()
    requests = [submit(engine, text(i, prompt), max_tokens=answer) for i, (prompt, answer) in enumerate(asks)]
    finish_all(engine, log)
    assert engine.preemptions == 0
    for request in requests:
        check_answer(engine, request, log[request])
    check_idle(engine)


def test_a_quantile_lets_in_more_than_the_limits_and_fewer_than_nothing() -> None:
    """Answers of 40 tokens with a limit of 400, in a cache of 40 pages."""
    together, preempted = {}, {}
    for quantile in (0.0, 0.5, 1.0):
        engine = make_engine(pages=40, seqs=30, tokens=512, reserve_quantile=quantile)
        for _ in range(40):
            engine.scheduler.reserve.lengths.add(40, ended=True)
        requests = [submit(engine, text(i, 16), max_tokens=400) for i in range(30)]
        together[quantile] = 0
        while engine.busy:
            for update in engine.step():
                if len(update.request.output_ids) >= 40:
                    engine.finish(update.request, "stop")
            together[quantile] = max(together[quantile], len(engine.scheduler.running))
        preempted[quantile] = engine.scheduler.preemptions["pages"]
        assert all(r.finish_reason == "stop" for r in requests)
    assert together[1.0] < together[0.5] < together[0.0]
    assert together[0.5] == 40 // (-(-(16 + 40) // PAGE_TOKENS))
    assert preempted[0.5] == preempted[1.0] == 0 < preempted[0.0]


def test_an_answer_longer_than_thought_is_preempted_and_ends() -> None:
    engine = make_engine(pages=12, seqs=8, tokens=256, reserve_quantile=0.5)
    for _ in range(40):
        engine.scheduler.reserve.lengths.add(10, ended=True)
    requests = [submit(engine, text(i, 16), max_tokens=100) for i in range(8)]
    finish_all(engine)
    assert engine.scheduler.preemptions["pages"] > 0
    for request in requests:
        check_answer(engine, request)
    check_idle(engine)


def test_an_estimate_is_from_what_is_known_to_the_limit() -> None:
    engine = make_engine()
    reserve: Reserve = engine.scheduler.reserve
    request = submit(engine, text(0, 10), max_tokens=50)
    assert reserve.tokens(request, 0.5) == request.limit == 60
    for _ in range(20):
        reserve.lengths.add(8, ended=True)
    assert reserve.tokens(request, 0.5) == 18
    for _ in range(100):
        reserve.lengths.add(3000, ended=True)
    assert reserve.tokens(request, 0.9) == 60
    engine.abort(request)


@pytest.mark.parametrize(("reason", "ends"), [("stop", 1), ("length", 0), ("abort", 0)])
def test_only_an_answer_that_ended_by_itself_counts_as_an_end(reason: str, ends: int) -> None:
    engine = make_engine()
    request = submit(engine, text(0, 4), max_tokens=5)
    if reason == "length":
        finish_all(engine)
    else:
        for _ in range(3):
            engine.step()
        engine.finish(request, reason)
    assert request.finish_reason == reason
    assert engine.scheduler.reserve.lengths.ends == ends
