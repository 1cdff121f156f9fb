"""Layers with a window through scheduler and runner: what each sequence keeps, and that answers stay what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from drut import LLM
from drut.cache.kinds import WindowGroup
from drut.engine.request.params import SamplingParams
from drut.kernels.native import library
from tests.engine import matrix
from tests.engine.chance import make_llm
from tests.engine.testbed import (
    FakeExecutable,
    check_answer,
    check_idle,
    finish_all,
    make_engine,
    make_log,
    step,
    submit,
    text,
)
from tests.golden.weights import config, write_checkpoint

HOW = [{}, {"overlap": True}, {"overlap": True, "burst": 16}, {"prefix_cache": False, "overlap": True, "chunk": 7}]


@pytest.mark.parametrize("settings", HOW, ids=str)
@pytest.mark.parametrize("windows", [(20,), (0, 20)], ids=str)
def test_a_long_sequence_holds_a_bounded_number_of_pages(windows: tuple[int, ...], settings: dict[str, object]) -> None:
    """Far longer than the pool of the window group, which a shorter sequence would fill if its pages stayed."""
    bound = WindowGroup(20, 32).bound
    engine = make_engine(pages=bound if windows == (20,) else 64, windows=windows, window_pages=bound, tokens=32,
                         canary=True, context=900, **settings)  # type: ignore[arg-type]
    assert engine.room == 900
    request, most = submit(engine, text(0, 600), max_tokens=200), 0
    while engine.busy:
        step(engine, make_log())
        most = max(most, request.table.held(len(windows) - 1))
    assert 2 <= most <= bound
    check_answer(engine, request)
    check_idle(engine)
    engine.close()


@pytest.mark.parametrize("settings", HOW[:3], ids=str)
@pytest.mark.parametrize("windows", [(20,), (0, 20), (0, 40, 3)], ids=str)
def test_a_conversation_goes_on_past_the_window(windows: tuple[int, ...], settings: dict[str, object]) -> None:
    engine = make_engine(windows=windows, window_pages=40, tokens=64, canary=True, **settings)  # type: ignore[arg-type]
    first = submit(engine, text(0, 200), max_tokens=30)
    finish_all(engine)
    executable = engine.runner.executable
    assert isinstance(executable, FakeExecutable)
    rows = executable.rows
    prompt = [*first.tokens, *text(1, 20)]
    second = submit(engine, prompt, max_tokens=10)
    finish_all(engine)
    assert second.cached_tokens == 224, "all full pages of the 229 tokens that were computed"
    assert executable.rows - rows == len(prompt) - 224 + 9
    check_answer(engine, second)
    check_idle(engine)
    engine.close()


@pytest.mark.parametrize("chunk", [None, 0])
def test_a_chunk_may_be_longer_than_the_window(chunk: int | None) -> None:
    engine = make_engine(windows=(0, 5), tokens=300, chunk=chunk, context=400, canary=True)
    request = submit(engine, text(3, 290), max_tokens=20, prompt_logprobs=2)
    log = make_log()
    finish_all(engine, log)
    check_answer(engine, request, log[request])
    check_idle(engine)
    engine.close()


def test_choices_share_what_their_windows_see() -> None:
    engine = make_engine(windows=(0, 24), tokens=32, canary=True, overlap=True, burst=8)
    params = SamplingParams(max_tokens=40, seed=5, ignore_eos=True, n=4, temperature=0)
    requests = engine.submit(text(2, 100), params)
    finish_all(engine)
    assert [r.cached_tokens for r in requests] == [0, 96, 96, 96]
    for request in requests:
        check_answer(engine, request)
    check_idle(engine)
    engine.close()


def test_a_preempted_sequence_resumes_from_its_last_window() -> None:
    engine = make_engine(windows=(0, 20), tokens=64, canary=True)
    request = submit(engine, text(0, 150), max_tokens=30)
    while len(request.output_ids) < 12:
        step(engine, make_log())
    engine.scheduler.preempt(request)
    step(engine, make_log())
    assert engine.cache.stats.hit == 160
    finish_all(engine)
    check_answer(engine, request)
    check_idle(engine)
    engine.close()


def test_many_sequences_wait_for_pages_of_the_window() -> None:
    """Sixteen pages of a window that each sequence wants four of: the others wait, or give way and come back."""
    engine = make_engine(windows=(0, 30), window_pages=16, pages=400, tokens=16, seqs=8, canary=True, overlap=True)
    requests = [submit(engine, text(i, 60), max_tokens=50) for i in range(12)]
    finish_all(engine)
    for request in requests:
        check_answer(engine, request)
    check_idle(engine)
    engine.close()


def test_a_step_of_several_groups_that_fails_is_taken_back() -> None:
    engine = make_engine(windows=(0, 20), overlap=True, canary=True)
    one, two = (submit(engine, text(i, 70), max_tokens=40) for i in range(2))
    for _ in range(12):
        step(engine, make_log())
    engine.scheduler.preempt(one)
    engine.abort(two)
    engine.check_idle()
    finish_all(engine)
    check_answer(engine, one)
    check_idle(engine)
    engine.close()


def long_asks(vocab: int) -> list[tuple[list[int], SamplingParams]]:
    """Prompts past the windows of the tiny checkpoints, and one that goes on from the first."""
    return [(list(matrix.text(i % 3, 120 + 30 * (i // 3), vocab)),
             SamplingParams(max_tokens=30, ignore_eos=True, seed=i, temperature=float(i % 2), logprobs=1, n=1 + i % 2))
            for i in range(6)]


@pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")
@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "mistral_window"])
def test_pages_that_are_let_go_change_no_bit(name: str, tmp_path: Path) -> None:
    path, asks = write_checkpoint(name, tmp_path / name), long_asks(config(name)["vocab_size"])

    def answers(**settings: object) -> list[object]:
        with make_llm(path, threads=1, **settings) as llm:  # type: ignore[arg-type]
            said = llm.generate([prompt for prompt, _ in asks], [params for _, params in asks])
            again = llm.generate([[*asks[0][0], *said[0].token_ids, 3, 4]], asks[0][1])
            hit = again[0].cached_tokens
            assert hit == (144 if llm.config.prefix_cache else 0), "all full pages of 149 tokens"
            llm.engine.check_idle()
            return [(a.token_ids, a.logprobs) for a in (*said, *again)]

    kept = answers(window_pages=False, prefix_cache=False, overlap=False)
    assert answers(debug_kv=True) == kept, "in bursts"
    assert answers(debug_kv=True, preempt=0.2, chunk_tokens=7) == kept
    assert answers(chunk_tokens=0, overlap=False, execution="eager") == kept


@pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")
def test_a_model_of_windows_alone_needs_a_cache_of_one_window(tmp_path: Path) -> None:
    """Seven pages of 16 tokens: what a window of 37 and two steps of 16 rows take."""
    path, vocab = write_checkpoint("mistral_window", tmp_path / "m"), config("mistral_window")["vocab_size"]
    prompt = list(matrix.text(0, 500, vocab))
    params = SamplingParams(max_tokens=200, ignore_eos=True, logprobs=1, temperature=0)
    with LLM(path, threads=1, window_pages=False) as llm:
        (whole,) = llm.generate([prompt], params)
        page_bytes = llm.engine.cache.pool.memory.page_bytes
    with LLM(path, threads=1, max_batch_tokens=16, max_seqs=2, kv_cache_gb=7.5 * page_bytes / 1e9) as llm:
        assert (llm.engine.cache.pool.total, llm.engine.room) == (7, 1024)
        (few,) = llm.generate([prompt], params)
        assert llm.logits(prompt, chunk=16).shape == (500, vocab)
        llm.engine.check_idle()
    assert (few.token_ids, few.logprobs) == (whole.token_ids, whole.logprobs)
