"""Constrained answers: the same bits however scheduled, and what each setting means beside a constraint."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drut import LLM, AnswerError, Constraint, SamplingParams
from drut.constrain import ReasoningSpec
from drut.constrain.grammar_matcher import GrammarMatcher
from drut.engine.request.params import NEUTRAL
from drut.engine.step.accept import Acceptor
from drut.errors import RequestError
from tests.engine.chance import make_llm
from tests.engine.models import said, write_bytes_model, write_poisoned_model
from tests.engine.pairwise import Row, all_pairs

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99},
                                           "b": {"enum": ["red", "green"]}, "c": {"type": "boolean"}},
          "required": ["a", "b", "c"], "additionalProperties": False}
JSON = Constraint.json_schema(SCHEMA)
DATE = Constraint.regex(r"[0-9]{4}-[01][0-9]-[0-3][0-9]")
WORDS = Constraint.lark('start: WORD ("," WORD){1,3}\nWORD: /[a-f]{2,5}/\n')
REASONING = ReasoningSpec("<t>", "/>", begun=True, budget=6, closing="/>")
CONSTRAINTS: tuple[tuple[Constraint, ReasoningSpec | None], ...] = (
    (JSON, None), (DATE, None), (WORDS, None), (DATE, REASONING), (JSON, ReasoningSpec("<t>", "/>")))
SETTINGS: dict[str, Any] = {"max_tokens": 60, "temperature": 1.0, "seed": 5}
EOS = 257


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("constrained"))


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1) as llm:
        yield llm


def ask(llm: LLM, prompt: str = "hello", **settings: Any) -> Any:
    return llm.generate([prompt], SamplingParams(**{**SETTINGS, "constraint": JSON, **settings}))[0]


def run_out(llm: LLM) -> None:
    while llm.engine.busy:
        llm.engine.step()


def sixteen() -> list[tuple[str, SamplingParams]]:
    """Constrained answers of all kinds among free ones, with and without whatever else can be asked for."""
    dice, asks = random.Random(0), []
    for i in range(16):
        constraint, reasoning = CONSTRAINTS[i % 5] if i % 2 == 0 or i == 15 else (None, None)
        asks.append(("shared beginning of more than a page, then " + str(i) * (i + 1), SamplingParams(
            max_tokens=dice.choice([20, 40, 60]), temperature=dice.choice([0.0, 1.0, 1.5]), seed=i,
            constraint=constraint, reasoning=reasoning, n=dice.choice([1, 1, 2]), top_k=dice.choice([0, 0, 20]),
            top_p=dice.choice([1.0, 0.9]), repetition_penalty=dice.choice([1.0, 1.0, 1.2]),
            logprobs=dice.choice([None, 2]), min_tokens=dice.choice([0, 0, 5]),
            ignore_eos=dice.choice([False, False, True]),
            logit_bias=dice.choice([None, {EOS: 5.0}]))))
    return asks


@pytest.mark.parametrize("numbers", [(JSON, None), (DATE, REASONING), (WORDS, None),
                                     (JSON, ReasoningSpec("<t>", "/>"))])
def test_asked_afterwards_is_as_masked_before(path: Path, llm: LLM,
                                              numbers: tuple[Constraint, ReasoningSpec | None]) -> None:
    """A top-k of the whole vocabulary leaves nothing out, but has each sample wait for its mask."""
    constraint, reasoning = numbers
    kinds = [{"temperature": t, "seed": seed, "n": n, "ignore_eos": seed % 2 == 0, "min_tokens": 4 * (seed % 3 == 0),
              "logprobs": 2, "repetition_penalty": 1.2 if seed % 3 else 1.0}
             for seed, (t, n) in enumerate([(0.0, 1), (1.0, 3), (1.5, 1), (0.3, 2), (1.0, 1), (2.0, 2)])]
    params = [SamplingParams(max_tokens=60, constraint=constraint, reasoning=reasoning, **kind) for kind in kinds]
    assert not any(replace(p, temperature=1.0, top_k=llm.engine.vocab).filled(NEUTRAL).draws_from_all for p in params)
    hot = [p for p in params if p.temperature]
    late = llm.generate(["hello"] * len(hot), hot)
    early = llm.generate(["hello"] * len(hot), [replace(p, top_k=llm.engine.vocab) for p in hot])
    assert [said(a) for a in late] == [said(a) for a in early]


@pytest.fixture(scope="module")
def alone(path: Path) -> list[list[Any]]:
    """What each of the sixteen says by itself, the plain way."""
    with LLM(path, threads=1, overlap=False, execution="eager", max_seqs=1, prefix_cache=False,
             forced_tokens=False) as llm:
        return [[said(a) for a in llm.generate([prompt], params)] for prompt, params in sixteen()]


ROWS = all_pairs({"overlap": (True, False), "execution": ("replay", "eager"), "threads": (1, 2), "chunk": (None, 3),
                  "preempt": (0.0, 0.2), "multi_step": (1, 16), "prefix": (True, False), "seqs": (5, 32),
                  "forced": (True, False)})
QUICK: list[Row] = [
    {"overlap": True, "execution": "replay", "threads": 1, "chunk": None, "preempt": 0.0, "multi_step": 16,
     "prefix": True, "seqs": 32, "forced": True},
    {"overlap": True, "execution": "replay", "threads": 1, "chunk": 3, "preempt": 0.2, "multi_step": 1,
     "prefix": False, "seqs": 5, "forced": True},
    {"overlap": False, "execution": "replay", "threads": 1, "chunk": None, "preempt": 0.0, "multi_step": 1,
     "prefix": True, "seqs": 32, "forced": True}]


@pytest.mark.parametrize("row", [*QUICK, *(pytest.param(row, marks=pytest.mark.slow) for row in ROWS)], ids=str)
def test_company_and_schedule_change_no_bit(path: Path, alone: list[list[Any]], row: Row) -> None:
    asks = sixteen()
    with make_llm(path, threads=row["threads"], overlap=row["overlap"], execution=row["execution"],
             chunk_tokens=row["chunk"], preempt=row["preempt"], multi_step=row["multi_step"],
             prefix_cache=row["prefix"], max_seqs=row["seqs"], forced_tokens=row["forced"], debug_kv=True) as llm:
        got = iter(llm.generate([prompt for prompt, _ in asks], [params for _, params in asks]))
        for wanted in alone:
            assert [said(next(got)) for _ in wanted] == wanted
        llm.engine.check_idle()


def test_answers_fit(llm: LLM) -> None:
    for seed in range(10):
        answer = ask(llm, seed=seed)
        assert set(json.loads(answer.text)) == {"a", "b", "c"}
        assert answer.finish_reason == "stop"
        assert answer.completion_tokens == len(answer.token_ids) == len(answer.text.encode())  # without a step for EOS


def test_a_grammar_that_may_go_on_ends_with_eos(llm: LLM) -> None:
    answer = ask(llm, constraint=Constraint.regex("ab*"), logit_bias={EOS: 100.0})
    assert (answer.text, answer.token_ids, answer.finish_reason) == ("a", [ord("a"), EOS], "stop")


def test_eos_comes_only_where_the_grammar_accepts(llm: LLM) -> None:
    assert set(json.loads(ask(llm, logit_bias={EOS: 100.0}).text)) == {"a", "b", "c"}


def test_ignore_eos_goes_on_as_long_as_the_grammar_does(llm: LLM) -> None:
    settings: dict[str, Any] = {"ignore_eos": True, "logit_bias": {EOS: 100.0}, "max_tokens": 30}
    endless = ask(llm, constraint=Constraint.regex("ab*"), **settings)
    assert (endless.text, endless.finish_reason) == ("a" + "b" * 29, "length")
    assert ask(llm, constraint=Constraint.regex("ab{2}"), **settings).finish_reason == "stop"


def test_min_tokens_holds_eos_back_but_not_the_end_of_the_grammar(llm: LLM) -> None:
    settings: dict[str, Any] = {"min_tokens": 10, "logit_bias": {EOS: 100.0}}
    assert ask(llm, constraint=Constraint.regex("ab*"), **settings).text == "a" + "b" * 9
    short = ask(llm, constraint=Constraint.regex("ab"), **settings)
    assert (short.text, short.finish_reason) == ("ab", "stop")


def test_a_cut_answer_is_the_beginning_of_one(llm: LLM) -> None:
    whole, cut = ask(llm), ask(llm, max_tokens=7)
    assert cut.finish_reason == "length"
    assert whole.text.startswith(cut.text)


def test_stop_strings_and_stop_ids_end_it_early(llm: LLM) -> None:
    whole = ask(llm).text
    cut = ask(llm, stop=["b"])
    assert cut.text == whole[: whole.index("b")]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", "b")
    by_id = ask(llm, stop_token_ids=[ord(":")])
    assert (by_id.text, by_id.stop_reason) == (whole[: whole.index(":")], ord(":"))


def test_logprobs_are_the_models(llm: LLM) -> None:
    """They are those of the same tokens in a prompt."""
    answer = ask(llm, logprobs=3)
    ids = list(b"hello") + answer.token_ids
    scored = llm.generate([ids], SamplingParams(max_tokens=1, prompt_logprobs=3, temperature=0))[0].prompt_logprobs
    assert answer.logprobs == scored[5:]


def test_choices_go_their_own_ways(llm: LLM) -> None:
    answers = llm.generate(["hello"], SamplingParams(**SETTINGS, constraint=JSON, n=6))
    assert len({a.text for a in answers}) > 1
    assert all(set(json.loads(a.text)) == {"a", "b", "c"} for a in answers)


def test_a_thought_comes_first_and_is_cut(llm: LLM) -> None:
    for seed in range(8):
        answer = ask(llm, constraint=DATE, reasoning=REASONING, seed=seed)
        at = bytes(answer.token_ids).index(b"/>")
        assert at <= 6
        assert len(answer.token_ids) - at - 2 == 10
        assert EOS not in answer.token_ids


def test_steps_without_a_constraint_have_no_masks(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a mask was made")

    monkeypatch.setattr(llm.engine.runner._mask_maker, "run", never)
    llm.generate(["hello"], SamplingParams(max_tokens=5, temperature=0))
    with pytest.raises(AnswerError, match="a mask was made"):
        ask(llm)


@pytest.mark.parametrize(("constraint", "named"), [
    (Constraint.regex("(["), "regex"), (Constraint.lark("start: nothing"), "nothing"),
    (Constraint.json_schema({"type": "number", "minimum": 3, "maximum": 2}), r"minimum \(3\) .*, at #"),
    (Constraint.json_schema({"patternProperties": {"^a": {}, "b$": {}}}), "patternProperties")])
def test_one_that_does_not_compile_is_refused_by_name(llm: LLM, constraint: Constraint, named: str) -> None:
    with pytest.raises(RequestError, match=named):
        ask(llm, constraint=constraint)
    assert not llm.engine.busy


def test_one_that_does_not_compile_fails_alone_where_others_run(llm: LLM) -> None:
    """As it comes to the loop that serves many: the request is taken, and ends when its grammar turns out bad."""
    bad = llm.engine.submit([1, 2], SamplingParams(constraint=Constraint.regex("(["), temperature=0))
    good = llm.engine.submit([1, 2], SamplingParams(**SETTINGS, constraint=DATE))
    updates = []
    while llm.engine.busy:
        updates += llm.engine.step()
    assert [u.token for u in updates if u.request in bad] == [None]
    assert bad[0].finish_reason == "error"
    assert isinstance(bad[0].failure, RequestError)
    assert good[0].finish_reason == "stop"
    llm.engine.check_idle()


def test_a_guide_that_fails_ends_its_request_only(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ask(llm, constraint=DATE, seed=9)
    real = GrammarMatcher.fill

    def failing(guide: GrammarMatcher, mask: Any) -> None:
        real(guide, mask)
        if guide.taken == 3 and guide._compiling is poisoned:
            guide.failure = RequestError("too complex")

    grammars = llm.engine.grammars
    assert grammars is not None
    poisoned = grammars.compile(WORDS)
    monkeypatch.setattr(grammars, "compile", {DATE: grammars.compile(DATE), WORDS: poisoned}.get)
    params = [SamplingParams(**{**SETTINGS, "seed": 9}, constraint=c) for c in (WORDS, DATE)]
    monkeypatch.setattr(GrammarMatcher, "fill", failing)
    with pytest.raises(AnswerError, match="too complex") as error:
        llm.generate(["hello", "hello"], params)
    assert [c.finish_reason for c in error.value.completions] == ["error", "stop"]
    assert said(error.value.completions[1]) == said(whole)
    llm.engine.check_idle()


def test_where_nothing_may_be_drawn_the_request_ends_with_its_reason(llm: LLM) -> None:
    with pytest.raises(AnswerError, match="min_tokens") as error:
        ask(llm, constraint=Constraint.regex(""), min_tokens=2, prompt_logprobs=0)
    scored = error.value.completions[0].prompt_logprobs
    assert scored is not None
    assert len(scored) == 5  # the step that failed brought them


def test_logits_that_are_not_finite_are_the_models_fault(tmp_path: Path) -> None:
    with LLM(write_poisoned_model(tmp_path, token=ord("!")), threads=1) as poisoned:
        with pytest.raises(AnswerError, match="not finite"):
            ask(poisoned, "!", constraint=DATE)
        assert ask(poisoned, constraint=DATE).finish_reason == "stop"


def test_a_step_that_fails_takes_guides_back(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step after it had drawn a token already; what goes on says the same as ever."""
    whole = ask(llm, constraint=JSON)
    engine, calls = llm.engine, iter(range(1000))
    real = Acceptor.process

    def failing(self: Any, *args: Any) -> None:
        if next(calls) == 6:
            monkeypatch.setattr(Acceptor, "process", real)
            raise OSError("made to fail")
        real(self, *args)

    requests = engine.submit(list(b"hello"), SamplingParams(**SETTINGS, constraint=JSON))
    monkeypatch.setattr(Acceptor, "process", failing)
    with pytest.raises(OSError, match="made to fail"):
        run_out(llm)
    engine.recover()
    assert requests[0].finish_reason == "error"
    guide = requests[0].guide
    assert guide is not None
    guide.truncate(len(requests[0].output_ids))
    assert guide.taken == len(requests[0].output_ids)
    engine.drain()
    assert said(ask(llm, constraint=JSON)) == said(whole)


@pytest.mark.model
@pytest.mark.slow
def test_a_real_model_says_what_fits_and_the_same_among_others() -> None:
    """At temperature 1; benchmarks/engine/structured.py asks 200 times."""
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                                               "age": {"type": "integer", "minimum": 0, "maximum": 120}},
              "required": ["name", "age"], "additionalProperties": False}
    with LLM("smollm2-135m-instruct", max_seqs=32) as llm:
        prompt = llm.encode_chat([{"role": "user", "content": "A fictional user as JSON with name and age."}])
        free = SamplingParams(max_tokens=16, temperature=1.0, seed=1)
        asked = [SamplingParams(max_tokens=80, temperature=1.0, seed=i, constraint=Constraint.json_schema(schema))
                 for i in range(12)]
        answers = llm.generate([prompt] * 16, [*asked, free, free, free, free])
        for answer in answers[:12]:
            assert set(json.loads(answer.text)) == {"name", "age"}
            assert answer.finish_reason == "stop"
        assert said(llm.generate([prompt], asked[3])[0]) == said(answers[3])
        assert said(llm.generate([prompt], free)[0]) == said(answers[12])


def test_aborted_in_the_middle(llm: LLM) -> None:
    stream = llm.stream("hello", SamplingParams(**SETTINGS, constraint=JSON))
    while not next(stream).token_ids:
        pass
    stream.close()
    llm.engine.check_idle()
    assert not llm.engine.busy
