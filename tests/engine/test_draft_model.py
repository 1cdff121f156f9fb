"""A draft model changes no bit of an answer. One that is the target itself has every draft accepted: so its rows are
never missing, stale or of other tokens, whatever the schedule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut import LLM, SamplingParams
from drut.errors import RequestError
from tests.cli import tiny
from tests.engine.chance import make_llm
from tests.engine.models import said
from tests.engine.test_speculation import alone, asks, check, path  # noqa: F401 - fixtures
from tests.model.gguf_writer import gguf


def write_near_model(directory: Path, noise: float, seed: int = 1, **changes: object) -> Path:
    """The bytes model with noise on its weights."""
    dice = np.random.default_rng(seed)
    tensors = []
    for t in tiny.tensors():
        values = np.frombuffer(t.data, "<f4")
        noisy = values + noise * values.std() * dice.standard_normal(values.size)
        tensors.append(replace(t, data=noisy.astype("<f4").tobytes()))
    near = directory / f"near-{noise}.gguf"
    near.write_bytes(gguf(tiny.metadata() | changes, tensors))
    return near


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_near_model(tmp_path_factory.mktemp("near"), 0.1)


def settings(drafter: Path, **more: Any) -> dict[str, Any]:
    return {"threads": 1, "speculate": f"draft:model={drafter},k=4,adaptive=0", "debug_kv": True, **more}


@pytest.mark.parametrize("more", [
    {}, {"overlap": False, "execution": "eager"}, {"preempt": 0.2, "max_seqs": 5}, {"chunk_tokens": 3, "max_seqs": 32},
    {"prefix_cache": False, "max_batch_tokens": 16}, {"kv_cache_gb": 2e-4, "max_seqs": 6}, {"kv_dtype": "int8"},
    {"backend": "numpy", "max_seqs": 16}], ids=str)
def test_a_draft_model_changes_no_bit(path: Path, near: Path, alone: Any, more: dict[str, Any]) -> None:  # noqa: F811
    if "kv_dtype" in more:
        with LLM(path, threads=1, **more) as llm:
            alone = [llm.generate([prompt], params) for prompt, params in asks()]
    with make_llm(path, **settings(near, **more)) as llm:
        if more.get("backend") == "numpy":
            prompts, params = [p for p, _ in asks()][:4], [p for _, p in asks()][:4]
            llm.generate(prompts, params)
        else:
            check(llm, alone)
        counts = llm.engine.speculation.counts["draft"]
        assert 0 < sum(counts.accepted) < counts.drafted


def unconstrained() -> tuple[list[str], list[SamplingParams]]:
    """Prompts that share prefixes, with every kind of sampling but grammars, which a draft model does not see."""
    settings = [
        {"temperature": 0.0}, {"temperature": 1.0, "n": 3}, {"temperature": 0.8, "top_k": 20, "logprobs": 2},
        {"temperature": 1.2, "top_p": 0.8, "min_p": 0.02}, {"temperature": 1.0, "repetition_penalty": 1.3, "n": 2},
        {"temperature": 0.0, "presence_penalty": 0.7, "frequency_penalty": 0.4},
        {"temperature": 1.0, "logit_bias": {97: 2.0, 101: -5.0}, "min_tokens": 30, "stop_token_ids": (98, 99)},
        {"temperature": 0.0, "stop_token_ids": (98,), "min_tokens": 20}]
    params = [SamplingParams(max_tokens=40, seed=i, **each) for i, each in enumerate(settings)]  # type: ignore[arg-type]
    return ["the same beginning of some length, then " + "abc" * i for i in range(len(params))], params


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("more", [
    {}, {"preempt": 0.15, "max_seqs": 6}, {"chunk_tokens": 5, "max_batch_tokens": 24}, {"prefix_cache": False},
    {"kv_cache_gb": 2.5e-4, "max_seqs": 5}, {"multi_step": 1, "kv_dtype": "int8"}], ids=str)
def test_a_drafter_that_is_the_target_has_every_draft_accepted(path: Path, more: dict[str, Any],  # noqa: F811
                                                               overlap: bool) -> None:
    prompts, params = unconstrained()
    with make_llm(path, **settings(path, overlap=overlap, **more)) as llm:
        answers = [said(a) for _ in range(2) for a in llm.generate(prompts, params)]  # with cached prefixes
        counts = llm.engine.speculation.counts["draft"]
        assert sum(counts.accepted) == counts.drafted > 200
        llm.engine.check_idle()
    with LLM(path, threads=1, kv_dtype=more.get("kv_dtype", "bf16")) as llm:
        assert [said(a) for a in llm.generate(prompts, params)] * 2 == answers


def rows_of(llm: LLM) -> list[int]:
    """The rows of each step of the drafter from now on."""
    drafter, rows = llm.engine.speculation.drafter, []
    launch = drafter._executable.launch  # type: ignore[union-attr]

    def counted(step: Any) -> Any:
        rows.append(step.rows)
        return launch(step)

    drafter._executable.launch = counted  # type: ignore[union-attr]
    return rows


PROMPT = "all of this is the prompt, more than four pages of sixteen tokens each, of one byte a token"
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


def test_a_cached_prefix_is_not_computed_again(path: Path) -> None:  # noqa: F811
    with LLM(path, **settings(path)) as llm:
        rows = rows_of(llm)
        llm.generate([PROMPT], GREEDY)
        assert rows[0] == len(PROMPT) + 1, "the prompt and its first token"
        rows.clear()
        llm.generate([PROMPT], GREEDY)
        assert rows[0] < 20, "the page that was not full"


def test_a_hole_in_a_cached_prefix_is_filled(path: Path) -> None:  # noqa: F811
    """A request without drafts leaves pages that the drafter never filled; the next two find them."""
    with LLM(path, **settings(path)) as llm:
        rows = rows_of(llm)
        llm.generate([PROMPT], replace(GREEDY, speculation=False))
        assert rows == []
        llm.generate([PROMPT + "!"], GREEDY)
        assert rows[0] == len(PROMPT) + 2
        rows.clear()
        llm.generate([PROMPT + "?"], GREEDY)
        assert rows[0] < 20, "the hole is no more"
        counts = llm.engine.speculation.counts["draft"]
        assert sum(counts.accepted) == counts.drafted > 10


def test_a_long_prompt_does_not_stall_others(path: Path) -> None:  # noqa: F811
    """While another sequence decodes, few rows of a prompt are computed at a time; it drafts once it has caught up."""
    with LLM(path, **settings(path, prefix_cache=False)) as llm:
        rows = rows_of(llm)
        llm.engine.speculation.drafter._target.seconds = lambda shape: 0.0  # type: ignore[union-attr, method-assign]
        llm.generate(["ab", PROMPT], replace(GREEDY, max_tokens=60))
        assert max(rows) <= 16 + 8
        assert len([r for r in rows if r >= 16]) == len(PROMPT) // 16 + 1
        counts = llm.engine.speculation.counts["draft"]
        assert sum(counts.accepted) == counts.drafted > 60


def test_no_draft_beyond_the_drafter_s_context(path: Path, tmp_path: Path) -> None:  # noqa: F811
    short = write_near_model(tmp_path, 0.0, **{"llama.context_length": 40})
    with LLM(path, **settings(short)) as llm:
        params = replace(GREEDY, max_tokens=80)
        drafted = llm.generate(["abc"], params)[0]
        counts = llm.engine.speculation.counts["draft"]
        assert sum(counts.accepted) == counts.drafted
        assert 20 <= counts.drafted < 40
        assert said(llm.generate(["abc"], replace(params, speculation=False))[0]) == said(drafted)


def test_other_token_ids_are_refused(path: Path, tmp_path: Path) -> None:  # noqa: F811
    tokens = list(tiny.metadata()["tokenizer.ggml.tokens"])  # type: ignore[call-overload]
    tokens[65], tokens[66] = tokens[66], tokens[65]
    other = write_near_model(tmp_path, 0.0, **{"tokenizer.ggml.tokens": tokens})
    with pytest.raises(RequestError, match="cannot draft for this model: token id 65 is 'B' there and 'A' here"):
        LLM(path, **settings(other))


def test_a_longer_vocabulary_is_padding(path: Path, tmp_path: Path) -> None:  # noqa: F811
    padded = tmp_path / "padded.gguf"
    padded.write_bytes(tiny.model("<pad0>", "<pad1>"))
    with LLM(path, **settings(padded)) as llm:
        llm.generate([PROMPT], replace(GREEDY, max_tokens=40))
        assert llm.engine.speculation.counts["draft"].drafted > 10


def test_pages_of_both_are_planned(path: Path, near: Path) -> None:  # noqa: F811
    """The drafter has a page for each page of the target, within the same bytes."""
    with LLM(path, **settings(near, kv_cache_gb=1e-3)) as llm, LLM(path, threads=1, kv_cache_gb=1e-3) as alone:  # noqa: F811
        target, drafter = llm.engine.cache.pools
        assert target.total == drafter.total == alone.engine.cache.pools[0].total // 2
        assert llm.room == alone.room


def test_rows_of_rejected_drafts_are_replaced(path: Path) -> None:  # noqa: F811
    """The drafter is the target, but misreads some samples: all drafts before the first misread one are right."""
    dice, truth = np.random.default_rng(0), list[int]()
    with LLM(path, **settings(path)) as llm:
        params = SamplingParams(max_tokens=60, temperature=1.0, seed=3, ignore_eos=True)
        truth = llm.generate([PROMPT], replace(params, speculation=False))[0].token_ids
        drafter: Any = llm.engine.speculation.drafter
        run, propose, misread, right = drafter._run, drafter.propose, list[bool](), list[int]()

        def misreading(step: Any) -> Any:
            tokens, status = run(step)
            misread.append(bool(dice.random() < 0.3))
            return [(t + misread[-1]) % tiny.VOCAB for t in tokens], status

        def checked(inputs: Any) -> Any:
            misread.clear()
            (drafts,) = propose(inputs)
            at = len(inputs[0].tokens) - len(PROMPT)
            good = [*misread, True].index(True)
            assert drafts[:good] == list(truth[at : at + good])
            right.append(good)
            return [drafts]

        drafter._run, drafter.propose = misreading, checked
        assert llm.generate([PROMPT], params)[0].token_ids == truth
        assert 0 < sum(right) < 4 * len(right)


def test_drafts_that_do_not_pay_are_probed_only(path: Path, tmp_path: Path) -> None:  # noqa: F811
    """A drafter that is always wrong drafts now and then; the answers are the same."""
    wrong = write_near_model(tmp_path, 9.0)
    params = [replace(GREEDY, max_tokens=100, seed=i, temperature=i % 2) for i in range(4)]
    with LLM(path, **settings(wrong, speculate=f"draft:model={wrong},k=4")) as llm:
        for _ in range(2):
            answers = [said(a) for a in llm.generate(["abc"] * 4, params)]
        counts = llm.engine.speculation.counts["draft"]
        assert sum(counts.accepted) < 0.2 * counts.drafted
        assert counts.verifications < 0.3 * 8 * 100
        assert not any(r.drafting for r in llm.engine.scheduler.running)
    with LLM(path, threads=1) as llm:
        assert [said(a) for a in llm.generate(["abc"] * 4, params)] == answers


@pytest.mark.parametrize("overlap", [True, False])
def test_an_adaptive_draft_model_changes_no_bit(path: Path, near: Path, alone: Any, overlap: bool) -> None:  # noqa: F811
    with make_llm(path, **settings(near, overlap=overlap, speculate=f"draft:model={near}", preempt=0.05)) as llm:
        check(llm, alone)


def test_the_noise_of_the_target_has_more_drafts_accepted(path: Path, near: Path) -> None:  # noqa: F811
    """At temperature 1, of the first draft of each verification, against a drafter with noise of its own."""
    params = [SamplingParams(max_tokens=60, temperature=1.0, seed=i, ignore_eos=True) for i in range(12)]
    accepted = []
    for shift in (0, 1 << 40):
        with LLM(path, **settings(near)) as llm:
            drafter: Any = llm.engine.speculation.drafter
            drafter.propose = lambda inputs, propose=drafter.propose, shift=shift: propose(
                [each._replace(sampling=each.sampling._replace(seed=each.sampling.seed + shift)) for each in inputs])
            llm.generate(["abc"] * 12, params)
            counts = llm.engine.speculation.counts["draft"]
            accepted.append(counts.accepted[0] / counts.verifications)
    coupled, independent = accepted
    assert coupled > 1.5 * independent, accepted
