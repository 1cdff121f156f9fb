"""Speculation changes no bit of an answer, whatever is asked for and whatever is drafted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drut import LLM, Constraint, SamplingParams
from drut.constrain import ReasoningSpec
from tests.engine.chance import make_llm
from tests.engine.models import said, write_bytes_model
from tests.engine.pairwise import Row, all_pairs
from tests.engine.scripted import SCRIPTS, Scripted
from tests.engine.test_constrained import DATE, JSON, sixteen

Answers = list[list[Any]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("speculation"))


def asks() -> list[tuple[str, SamplingParams]]:
    """Of all kinds, and some whose reasoning ends inside drafts, by itself or by its budget."""
    more = [SamplingParams(max_tokens=40, seed=i, temperature=t, top_k=top_k, constraint=constraint,
                           reasoning=reasoning)
            for i, (t, top_k, constraint, reasoning) in enumerate([
                (1.0, 0, DATE, ReasoningSpec("<t>", "/>", begun=True, budget=9, closing="\n/>\n")),
                (1.0, 30, JSON, ReasoningSpec("<t>", "/>", begun=True, budget=5, closing="/>")),
                (0.7, 0, None, ReasoningSpec("<t>", "e", begun=True, budget=12, closing=".e")),
                (1.0, 0, JSON, ReasoningSpec("<t>", " ", begun=True)),
                (1.0, 9, Constraint.regex("[a-f ]{30}"), None)])]
    return [*sixteen(), *(("thinking: " + "ab" * i, params) for i, params in enumerate(more))]


@pytest.fixture(scope="module")
def alone(path: Path) -> Answers:
    """Each by itself, one token after the other."""
    with LLM(path, threads=1, overlap=False, execution="eager", max_seqs=1, prefix_cache=False,
             forced_tokens=False) as llm:
        return [llm.generate([prompt], params) for prompt, params in asks()]


def with_drafter(llm: LLM, drafter: Any) -> None:
    """Has every draft of `drafter` verified."""
    llm.engine.speculation.use(drafter, 16)


def check(llm: LLM, alone: Answers) -> None:
    got = iter(llm.generate([prompt for prompt, _ in asks()], [params for _, params in asks()]))
    for wanted in alone:
        assert [said(next(got)) for _ in wanted] == [said(a) for a in wanted]
    llm.engine.check_idle()


def known(llm: LLM, alone: Answers) -> list[list[int]]:
    assert llm.tokenizer is not None
    return [[*llm.tokenizer.encode(prompt), *answer.token_ids]
            for (prompt, _), answers in zip(asks(), alone, strict=True) for answer in answers]


ROWS = all_pairs({"script": tuple(SCRIPTS), "overlap": (True, False), "execution": ("replay", "eager"),
                  "threads": (1, 2), "chunk": (None, 3), "preempt": (0.0, 0.2), "multi_step": (1, 16),
                  "prefix": (True, False), "seqs": (5, 32), "forced": (True, False)})
QUICK: list[Row] = [{"script": script, "overlap": i % 2 == 0, "execution": "replay", "threads": 1, "chunk": None,
                     "preempt": 0.1 * (i % 3), "multi_step": 16, "prefix": True, "seqs": 32, "forced": i != 0}
                    for i, script in enumerate(SCRIPTS)]


@pytest.mark.parametrize("row", [*QUICK, *(pytest.param(row, marks=pytest.mark.slow) for row in ROWS)], ids=str)
def test_no_draft_changes_a_bit(path: Path, alone: Answers, row: Row) -> None:
    with make_llm(path, threads=row["threads"], overlap=row["overlap"], execution=row["execution"],
                  chunk_tokens=row["chunk"], preempt=row["preempt"], multi_step=row["multi_step"],
                  prefix_cache=row["prefix"], max_seqs=row["seqs"], forced_tokens=row["forced"], debug_kv=True,
                  speculate="ngram") as llm:
        drafter = Scripted(known(llm, alone), llm.engine.vocab, SCRIPTS[str(row["script"])])
        with_drafter(llm, drafter)
        check(llm, alone)
        assert drafter.drafted > 100
        if row["script"] == "right":
            assert drafter.accepted > 0.97 * drafter.drafted
        if row["script"] == "wrong":
            assert drafter.accepted == 0


@pytest.mark.parametrize("speculate", ["ngram:min=1,adaptive=0", "suffix:adaptive=0", "auto:adaptive=0,min=2", "auto"])
@pytest.mark.parametrize("overlap", [True, False])
def test_no_method_changes_a_bit(path: Path, alone: Answers, speculate: str, overlap: bool) -> None:
    with make_llm(path, threads=1, overlap=overlap, speculate=speculate, debug_kv=True) as llm:
        for _ in range(2):  # the second time from outputs of the first
            check(llm, alone)
        counts = llm.engine.speculation.counts.values()
        if "adaptive" in speculate:
            assert sum(sum(c.accepted) for c in counts) > 20


@pytest.fixture
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1, speculate="ngram:min=1,adaptive=0") as llm:
        yield llm


def test_a_stop_string_inside_drafts_ends_the_text_there(llm: LLM) -> None:
    params = SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)
    whole = llm.generate(["abcabc"], params)[0]
    stop = whole.text[30:32]
    cut = llm.generate(["abcabc"], replace(params, stop=[stop]))[0]
    assert cut.finish_reason == "stop"
    assert cut.text == whole.text[: whole.text.index(stop)]


def test_a_request_can_do_without(llm: LLM) -> None:
    params = SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)
    with_drafts = llm.generate(["abcabc"], params)[0]
    before = llm.engine.speculation.counts["ngram"].drafted
    assert before > 0
    assert said(llm.generate(["abcabc"], replace(params, speculation=False))[0]) == said(with_drafts)
    assert llm.engine.speculation.counts["ngram"].drafted == before


class Broken(Scripted):
    """It answers for too few, or not at all."""

    def __init__(self, raises: bool) -> None:
        super().__init__((), 1, SCRIPTS["right"])
        self.raises, self.asked = raises, 0

    def propose(self, inputs: Any) -> list[Any]:
        self.asked += 1
        if self.raises:
            raise OSError("made to fail")
        return [[1]] * (len(inputs) - 1)


@pytest.mark.parametrize("raises", [True, False])
def test_a_drafter_that_fails_is_not_asked_again(llm: LLM, raises: bool, caplog: pytest.LogCaptureFixture) -> None:
    params = SamplingParams(max_tokens=20, temperature=0)
    wanted = said(llm.generate(["abcabc"], params)[0])
    drafter = Broken(raises)
    with_drafter(llm, drafter)
    assert said(llm.generate(["abcabc"], params)[0]) == wanted
    assert drafter.asked == 1
    assert "speculation is off from now on" in caplog.text
    llm.engine.check_idle()
