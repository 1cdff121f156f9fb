"""What requests share of the prefix cache, what keeps them apart, and what is counted of it."""

from __future__ import annotations

from drut.engine.request.params import SamplingParams
from drut.kernels.kv import PAGE_TOKENS
from tests.engine.testbed import check_answer, check_idle, finish_all, make_engine, make_log, step, submit, text

P = PAGE_TOKENS


def test_a_preempted_request_resumes_from_what_is_cached() -> None:
    engine = make_engine(pages=32)
    request = submit(engine, text(0, 3 * P), max_tokens=10)
    other = submit(engine, text(1, 3), max_tokens=20)
    for _ in range(5):
        engine.step()
    engine.scheduler.preempt(request)
    assert (request.computed, request.why.preemptions, len(request.table.pages)) == (0, 1, 0)
    rows = engine.runner.executable.rows  # type: ignore[attr-defined]
    engine.step()
    assert engine.runner.executable.rows - rows <= 1 + len(request.tokens) - 3 * P  # type: ignore[attr-defined]
    finish_all(engine)
    assert request.cached_tokens == 0, "of the prompt, at first admission"
    check_answer(engine, request)
    check_answer(engine, other)


def test_choices_share_the_pages_of_their_prompt() -> None:
    engine = make_engine(pages=64, tokens=64)
    params = SamplingParams(max_tokens=5, n=3, seed=1, ignore_eos=True, temperature=0)
    requests = engine.submit(text(0, 10 * P + 1), params)
    log = make_log()
    while not all(r in engine.scheduler.running and r.decoding for r in requests):
        step(engine, log)
    assert engine.cache.pool.cached == 10
    assert engine.cache.pool.private == 3
    assert requests[0].table.pages[:10] == requests[1].table.pages[:10] == requests[2].table.pages[:10]
    finish_all(engine, log)
    assert [r.cached_tokens for r in requests] == [0, 160, 160]
    assert engine.runner.executable.rows == 161 + 2 * 1 + 3 * 4  # type: ignore[attr-defined]
    assert len({tuple(r.output_ids) for r in requests}) == 3
    for request in requests:
        check_answer(engine, request, log[request])


def test_choices_do_not_wait_for_a_first_that_was_aborted() -> None:
    engine = make_engine(tokens=16)
    first, *others = engine.submit(text(0, 50), SamplingParams(max_tokens=5, n=3, seed=1, temperature=0))
    engine.step()
    engine.abort(first)
    finish_all(engine)
    for request in others:
        check_answer(engine, request)
    assert all(r.finish_reason != "abort" for r in others)


def test_salts_share_nothing() -> None:
    engine = make_engine()
    prompt = text(0, 4 * P)
    cached = []
    for salt in ("a", "b", "a", ""):
        request = submit(engine, prompt, salt=salt)
        finish_all(engine)
        check_answer(engine, request)
        cached.append(request.cached_tokens)
    assert cached == [0, 0, 3 * P, 0]


def test_statistics_are_in_tokens() -> None:
    engine = make_engine(pages=8)
    stats = engine.cache.stats
    prompt = text(0, 4 * P + 2)
    for _ in range(2):
        submit(engine, prompt, max_tokens=1)
        finish_all(engine)
    assert (stats.queried, stats.hit, stats.evicted_miss) == (2 * 66, 4 * P, 0)
    submit(engine, text(1, 7 * P), max_tokens=1)
    finish_all(engine)
    assert stats.evictions == 3
    submit(engine, prompt, max_tokens=1)
    finish_all(engine)
    assert stats.hit == 5 * P
    assert stats.evicted_miss == P
    check_idle(engine)


def test_a_request_that_scores_its_prompt_takes_no_hit_but_leaves_one() -> None:
    engine = make_engine(tokens=16)
    prompt = text(0, 3 * P + 1)
    requests = [submit(engine, prompt, prompt_logprobs=0), submit(engine, prompt, prompt_logprobs=2)]
    log = make_log()
    finish_all(engine, log)
    after = submit(engine, prompt)
    finish_all(engine, log)
    assert [r.cached_tokens for r in (*requests, after)] == [0, 0, 3 * P]
    for request in requests:
        check_answer(engine, request, log[request])


def test_many_sequences_over_one_long_prefix() -> None:
    """Their block tables together are far longer than the pool."""
    engine = make_engine(pages=64, seqs=32, tokens=64)
    prompt = text(0, 30 * P)
    requests = [submit(engine, [*prompt, i], max_tokens=3) for i in range(32)]
    finish_all(engine)
    for request in requests:
        check_answer(engine, request)
    assert engine.preemptions == 0
