"""What a caller of LLM sees: answers, streams, choices, stops, bias, logprobs, seeds, and one's failure alone."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from drut import LLM, AnswerError, Chunk, Completion, SamplingParams
from drut.cache.pool import KvCorruptionError
from drut.errors import DrutError, RequestError
from tests.engine.chance import make_llm
from tests.engine.models import said, write_bytes_model, write_poisoned_model
from tests.engine.testbed import VOCAB, finish_all, make_engine

PROMPTS = ["hello", "a", "the quick brown fox jumps over the lazy dog, twice"]
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True, temperature=0)
SEEDED = SamplingParams(max_tokens=24, temperature=1.0, top_p=0.95, seed=11, ignore_eos=True)
PARAMS = {
    "greedy": GREEDY,
    "seeded": SEEDED,
    "choices": SamplingParams(max_tokens=9, temperature=1.0, seed=5, n=3),
    "stop string": SamplingParams(max_tokens=40, temperature=1.2, seed=2, stop=["q", "zz"]),
    "stop id": SamplingParams(max_tokens=40, temperature=1.2, seed=2, stop_token_ids=[ord("k"), ord("q")]),
    "scored": SamplingParams(max_tokens=6, temperature=1.0, seed=3, logprobs=2, prompt_logprobs=1, n=2),
}


@pytest.fixture(scope="module", params=["plain", "overlap"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = write_bytes_model(tmp_path_factory.mktemp("llm"))
    with LLM(path, threads=1, overlap=request.param == "overlap", debug_kv=True) as made:
        yield made
        made.engine.check_idle()
        pool = made.engine.cache.pool
        assert pool.free + pool.cached == pool.total, "something was left behind"
        assert not made.engine.busy


def one(llm: LLM, prompt: str | list[int], **params: object) -> Completion:
    settings = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, **params}
    return llm.generate([prompt], SamplingParams(**settings))[0]  # type: ignore[arg-type]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def joined(chunks: list[Chunk]) -> list[Completion]:
    """The completions at the ends of a stream, after checking that its pieces add up to them."""
    ends = sorted((c.completion for c in chunks if c.completion), key=lambda c: c.index)
    for end in ends:
        pieces = [c for c in chunks if c.index == end.index]
        assert "".join(c.text for c in pieces) == end.text
        assert [t for c in pieces for t in c.token_ids] == end.token_ids
        assert pieces[-1].completion is end
    return ends


@pytest.mark.parametrize("name", PARAMS)
def test_a_stream_says_what_generate_says(llm: LLM, name: str) -> None:
    for prompt in PROMPTS:
        whole = llm.generate([prompt], PARAMS[name])
        streamed = joined(list(llm.stream(prompt, PARAMS[name])))
        assert len(streamed) == len(whole) == PARAMS[name].n
        for a, b in zip(whole, streamed, strict=True):
            assert said(a, scores=False) == said(b, scores=False)
            assert a.logprobs == b.logprobs
            assert b.prompt_logprobs == (a.prompt_logprobs if a.index == 0 else None)


def test_streams_may_be_read_in_turns(llm: LLM) -> None:
    alone = [said(llm.generate([p], SEEDED)[0]) for p in PROMPTS]
    chunks: list[list[Chunk]] = [[], [], []]
    for step in zip_longest(*(llm.stream(p, SEEDED) for p in PROMPTS)):
        for got, chunk in zip(chunks, step, strict=True):
            got += [chunk] if chunk else []
    assert [said(end) for got in chunks for end in joined(got)] == alone


def test_generate_amid_a_stream(llm: LLM) -> None:
    alone = said(llm.generate(["hello"], SEEDED)[0])
    other = said(llm.generate(["a"], GREEDY)[0])
    stream = llm.stream("hello", SEEDED)
    chunks = [next(stream) for _ in range(3)]
    assert said(llm.generate(["a"], GREEDY)[0]) == other
    assert [said(c) for c in joined(chunks + list(stream))] == [alone]


def test_closing_one_stream_leaves_the_others(llm: LLM) -> None:
    alone = said(llm.generate(["hello"], SEEDED)[0])
    kept, closed = llm.stream("hello", SEEDED), llm.stream("hello there", SEEDED)
    chunks = [next(kept), next(kept)]
    next(closed)
    closed.close()
    assert [said(c) for c in joined(chunks + list(kept))] == [alone]
    assert not llm.engine.busy


def test_each_prompt_has_its_params(llm: LLM) -> None:
    prompts = PROMPTS * 2
    params = [GREEDY, SEEDED, PARAMS["choices"], PARAMS["scored"], PARAMS["stop id"], PARAMS["stop string"]]
    alone = [said(c) for prompt, p in zip(prompts, params, strict=True) for c in llm.generate([prompt], p)]
    assert [said(c) for c in llm.generate(prompts, params)] == alone


def test_text_and_ids_are_the_same_prompt(llm: LLM) -> None:
    assert llm.tokenizer is not None
    ids = llm.tokenizer.encode("hello")
    assert said(one(llm, ids)) == said(one(llm, "hello")) == said(llm.generate("hello", GREEDY)[0])
    assert said(llm.generate(np.array(ids), GREEDY)[0]) == said(one(llm, ids))  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_stop_string_ends_the_text_before_it(llm: LLM, length: int) -> None:
    free = one(llm, "hello").text
    assert len(free) == 24
    for at in range(1, len(free) - length):
        stop = free[at : at + length]
        first = free.index(stop)
        answer = one(llm, "hello", stop=stop)
        assert (answer.text, answer.finish_reason) == (free[:first], "stop")
        assert answer.completion_tokens == len(answer.token_ids) == first + length
        assert answer.token_ids == one(llm, "hello").token_ids[: first + length]


def test_of_stop_strings_the_one_that_ends_first_counts(llm: LLM) -> None:
    free = one(llm, "hello").text
    answer = one(llm, "hello", stop=[free[4:20], free[6:8], "not there"])
    assert answer.text == free[: free.index(free[6:8])]


def test_a_stop_id_ends_the_answer_and_is_not_in_the_text(llm: LLM) -> None:
    free = one(llm, "hello")
    stop = free.token_ids[7]
    first = free.token_ids.index(stop)
    answer = one(llm, "hello", stop_token_ids=[stop, 0])
    assert (answer.token_ids, answer.finish_reason) == (free.token_ids[: first + 1], "stop")
    assert answer.text == free.text[:first]


def test_min_tokens_hold_back_ends(llm: LLM) -> None:
    free = one(llm, "hello", logprobs=0)
    stops = sorted(set(free.token_ids))
    held = one(llm, "hello", stop_token_ids=stops, min_tokens=10, logprobs=0)
    assert not set(held.token_ids[:9]) & set(stops)
    assert len(held.token_ids) >= 10
    assert all(next(iter(e.values())).rank >= 1 for e in held.logprobs or ())
    text = one(llm, "hello", stop=[free.text[1], free.text[2]], min_tokens=6)
    assert text.text == free.text[:5] + text.text[5:]
    assert text.completion_tokens >= 6


def test_bias_forces_and_forbids(llm: LLM) -> None:
    free = one(llm, "hello", logprobs=3)
    assert one(llm, "hello", logit_bias={65: 100.0}).token_ids == [65] * 24
    forbidden = one(llm, "hello", logit_bias={free.token_ids[0]: -100.0}, logprobs=3)
    assert free.token_ids[0] not in forbidden.token_ids
    assert free.logprobs
    assert forbidden.logprobs
    raw = dict(free.logprobs[0])
    assert {i: raw[i] for i in raw if i in forbidden.logprobs[0]} == {
        i: p for i, p in forbidden.logprobs[0].items() if i in raw}, "logprobs are those of the raw logits"
    assert forbidden.logprobs[0][forbidden.token_ids[0]].rank == 2


def test_penalties_change_what_repeats(llm: LLM) -> None:
    free = one(llm, "aaaaaaaa", max_tokens=60)
    assert len(set(free.token_ids)) < 20
    for name, value in (("presence_penalty", 2.0), ("frequency_penalty", 2.0), ("repetition_penalty", 5.0)):
        assert len(set(one(llm, "aaaaaaaa", max_tokens=60, **{name: value}).token_ids)) > len(set(free.token_ids))
    assert ord("a") not in one(llm, "a", max_tokens=5, repetition_penalty=50.0).token_ids


def check_entry(entry: dict[int, tuple[float, int, str]], token: int, logprobs: np.ndarray, top: int) -> None:
    """One entry against the log-softmax of that row's logits."""
    order = np.argsort(-logprobs, kind="stable")
    best = order[:top].tolist()
    assert set(entry) == {*best, token}
    assert list(entry)[: len(best)] == best
    for i, (value, rank, _) in entry.items():
        assert value == pytest.approx(logprobs[i], abs=2e-5)
        assert order[rank - 1] == i


@pytest.mark.parametrize("top", [0, 1, 20])
@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_logprobs_are_the_log_softmax_of_the_logits(llm: LLM, params: SamplingParams, top: int) -> None:
    settings = {"max_tokens": 12, "temperature": params.temperature, "seed": 4, "logprobs": top, "prompt_logprobs": top}
    prompt = [ord(c) for c in PROMPTS[2]]
    answer = one(llm, prompt, **settings)
    rows = log_softmax(llm.logits(prompt + answer.token_ids))
    assert answer.logprobs is not None
    assert answer.prompt_logprobs is not None
    assert len(answer.logprobs) == len(answer.token_ids) == 12
    assert len(answer.prompt_logprobs) == len(prompt)
    assert answer.prompt_logprobs[0] is None
    for i, entry in enumerate(answer.prompt_logprobs[1:]):
        assert entry is not None
        check_entry(entry, prompt[i + 1], rows[i], top)
    for i, entry in enumerate(answer.logprobs):
        check_entry(entry, answer.token_ids[i], rows[len(prompt) - 1 + i], top)
        assert entry[answer.token_ids[i]].decoded == chr(answer.token_ids[i])


def test_logprobs_are_given_where_asked_for(llm: LLM) -> None:
    plain = one(llm, "hello")
    assert plain.logprobs is plain.prompt_logprobs is None
    assert one(llm, "hello", logprobs=0).prompt_logprobs is None
    assert one(llm, "h", prompt_logprobs=0).prompt_logprobs == [None]
    json = one(llm, "hello", logprobs=1, max_tokens=1).to_json()
    assert set(json["logprobs"][0][str(json["token_ids"][0])]) == {"logprob", "rank", "decoded"}
    assert "prompt_logprobs" not in json


def test_scores_of_a_prompt_do_not_depend_on_what_is_cached(llm: LLM) -> None:
    prompt = "x" * 50
    llm.engine.cache.clear()
    cold = one(llm, prompt, prompt_logprobs=2, logprobs=1)
    warm = one(llm, prompt, prompt_logprobs=2, logprobs=1)
    assert said(cold) == said(warm)
    assert warm.cached_tokens == 0
    assert one(llm, prompt).cached_tokens == 48


def test_logits_are_the_same_beside_a_stream(llm: LLM) -> None:
    ids = [ord(c) for c in "hello"]
    alone = llm.logits(ids)
    assert alone.shape == (5, llm.files.spec.vocab)
    stream = llm.stream("hello", GREEDY)
    first = next(stream)
    assert llm.logits(ids, chunk=2).tobytes() == alone.tobytes()
    assert first.text + "".join(chunk.text for chunk in stream) == llm.generate("hello", GREEDY)[0].text


def test_logits_of_a_text_that_does_not_fit_are_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match=f"{llm.room + 1} tokens do not fit the context of {llm.room}"):
        llm.logits([5] * (llm.room + 1))
    assert len(llm.logits([5] * llm.room)) == llm.room


def test_choices_have_indices_and_differ(llm: LLM) -> None:
    three = llm.generate(["hello"], SamplingParams(max_tokens=12, temperature=1.5, seed=6, n=3))
    assert [c.index for c in three] == [0, 1, 2]
    assert len({c.text for c in three}) == 3
    (alone,) = llm.generate(["hello"], SamplingParams(max_tokens=12, temperature=1.5, seed=6))
    assert said(alone) == said(three[0])
    many = llm.generate(["hello", "a"], SamplingParams(max_tokens=3, n=2, temperature=0))
    assert [c.index for c in many] == [0, 1, 0, 1]
    assert many[0].text == many[1].text, "greedy choices are all the same"


def test_a_seed_is_always_reported_and_gives_the_answer_again(llm: LLM) -> None:
    params = {"temperature": 1.5, "max_tokens": 20}
    first, second = one(llm, "hello", **params), one(llm, "hello", **params)
    assert first.seed != second.seed
    assert first.token_ids != second.token_ids
    for answer in (first, second):
        assert said(one(llm, "hello", seed=answer.seed, **params)) == said(answer)
    assert one(llm, "hello", seed=-1, **params).token_ids == one(llm, "hello", seed=(1 << 64) - 1, **params).token_ids


@pytest.mark.parametrize("bad", ["x" * 200, [5, 1 << 20], [], [-1], None, 3.5, "\ud800", [[1], [2, 3]]])
def test_a_failing_prompt_in_a_batch_leaves_nothing_behind(llm: LLM, bad: object) -> None:
    with pytest.raises(RequestError):
        llm.generate(["hello", bad, "a"], GREEDY)  # type: ignore[list-item]
    assert not llm.engine.busy
    assert llm.engine.cache.pool.private == 0
    assert one(llm, "hello").finish_reason == "length"


@pytest.mark.parametrize("params", [{"logit_bias": {258: 1.0}}, {"stop_token_ids": [999]}, {"stop": ["x" * 20_000]}])
def test_failing_params_leave_nothing_behind(llm: LLM, params: dict[str, object]) -> None:
    name = next(iter(params))
    with pytest.raises(RequestError, match=name):
        one(llm, "hello", **params)
    assert not llm.engine.busy


def test_choices_share_what_was_made_of_their_stop_strings(llm: LLM) -> None:
    params = SamplingParams(max_tokens=2, n=32, stop=["".join(map(chr, range(256, 256 + 4000)))], temperature=0)
    tracemalloc.start()
    answers = llm.submit("hello", params)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for answer in answers:
        llm.engine.abort(answer.request)
    assert held < 4 * 4000 * 500


def test_choices_have_a_copy_each_of_the_prompt_logprobs(llm: LLM) -> None:
    first, second = llm.generate(["hello"], PARAMS["scored"])
    assert first.prompt_logprobs == second.prompt_logprobs
    assert first.prompt_logprobs
    assert second.prompt_logprobs
    first.prompt_logprobs[1] = None
    (first.prompt_logprobs[2] or {}).clear()
    assert second.prompt_logprobs[1]
    assert second.prompt_logprobs[2]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_model_that_breaks_down_over_one_prompt_loses_no_other_answer(tmp_path: Path, overlap: bool) -> None:
    with LLM(write_poisoned_model(tmp_path, token=ord("!")), threads=1, overlap=overlap) as poisoned:
        alone = [said(poisoned.generate([p], SEEDED)[0]) for p in ("hello", "a")]
        with pytest.raises(AnswerError, match=r"^prompt 2 of 3: the model's logits are not finite") as caught:
            poisoned.generate(["hello", "hello!", "a"], SEEDED)
        good, bad, last = caught.value.completions
        assert [said(good), said(last)] == alone
        assert (bad.finish_reason, bad.token_ids, bad.text) == ("error", [], "")
        with pytest.raises(AnswerError, match=r"^the model's logits are not finite"):
            poisoned.generate("!", SEEDED)
        with pytest.raises(DrutError, match="not finite"):
            list(poisoned.stream("!", SEEDED))
        assert not poisoned.engine.busy


def test_as_many_params_as_prompts(llm: LLM) -> None:
    with pytest.raises(RequestError, match="params has 1 entries for 2 prompts"):
        llm.generate(["hello", "a"], [GREEDY])
    with pytest.raises(RequestError, match="there is no prompt"):
        llm.generate([], GREEDY)


def test_an_answer_runs_to_the_room_and_says_so(llm: LLM) -> None:
    answer = one(llm, "x" * 150, max_tokens=1000)
    assert (answer.prompt_tokens + answer.completion_tokens, answer.finish_reason) == (llm.room, "length")


def test_a_request_says_why_it_took_its_time(llm: LLM) -> None:
    answer = one(llm, "hello")
    assert answer.why.steps == 24
    assert answer.why.queued_s >= 0
    assert answer.why.preemptions == 0
    assert 0 < answer.timings["ttft_s"] < 10
    assert answer.timings["decode_tokens_per_s"] > 0


def test_an_end_id_the_model_has_no_logits_for_is_no_end() -> None:
    """A tokenizer may name more ids than its model has; held back for `min_tokens` they would reach past the logits."""
    engine = make_engine(eos=frozenset({7, VOCAB, VOCAB + 5}))
    assert engine.eos_ids == {7}
    engine.submit([1, 2, 3], SamplingParams(max_tokens=4, min_tokens=2, temperature=0))
    finish_all(engine)
    engine.close()


@pytest.mark.parametrize("overlap", [False, True])
def test_a_flipped_byte_in_a_cached_page_is_noticed(tmp_path: Path, overlap: bool) -> None:
    with LLM(write_bytes_model(tmp_path), threads=1, debug_kv=True, overlap=overlap) as llm:
        one(llm, "x" * 40)
        cache = llm.engine.cache
        page = next(cache.tree.walk("", [ord("x")] * 16, 1)).held[0].page
        one(llm, "x" * 40)
        cache.pool.memory.data[page, 3] ^= 1
        with pytest.raises(KvCorruptionError, match=f"the bytes of page {page} changed"):
            one(llm, "x" * 40)
        assert not llm.engine.busy


def test_the_environment_switches_debugging_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_bytes_model(tmp_path)
    with LLM(path, threads=1) as llm:
        plain = one(llm, "hello")
        assert llm.engine.cache.pool.canary is None
    monkeypatch.setenv("DRUT_DEBUG_KV", "1")
    with make_llm(path, preempt=1.0, threads=1) as llm:
        preempted = one(llm, "hello")
        assert llm.engine.cache.pool.canary is not None
    assert preempted.why.preemptions > 5
    assert said(preempted) == said(plain)
