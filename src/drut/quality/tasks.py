"""Questions with answers that can be scored: the first of GSM8K, and HumanEval, whose answers are run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from drut.bench.workloads.gsm8k import ANSWERS, asked, right
from drut.bench.workloads.humaneval import problems, program, question
from drut.engine.llm import LLM
from drut.engine.params import SamplingParams
from drut.errors import RequestError, UnsupportedError
from drut.quality import sandbox
from drut.quality.estimate import Estimate, proportion


class Score(msgspec.Struct, frozen=True):
    task: str
    questions: int
    correct: Estimate
    unfinished: int  # answers that were cut off at their longest
    unbounded: tuple[str, ...] = ()  # what the sandbox could not bound on this machine, where answers were run


def gsm8k(model: LLM, questions: int | None = None, max_tokens: int = 512) -> Score:
    """Greedy answers through the chat template, all at once. RequestError for more questions than have answers."""
    questions = _count("gsm8k", questions, len(ANSWERS))
    prompts = [model.encode_chat([{"role": "user", "content": question}]) for question in asked(questions)]
    answers = model.generate(prompts, SamplingParams(max_tokens=max_tokens))
    hits = sum(right(number, answer.text) for number, answer in enumerate(answers))
    cut_off = sum(a.finish_reason == "length" for a in answers)
    return Score("gsm8k", questions, proportion(hits, questions), cut_off)


def humaneval(model: LLM, questions: int | None = None, max_tokens: int = 512,
              report: Callable[[int, int], None] | None = None) -> Score:
    """pass@1 of greedy answers, through the chat template where the model has one. Runs what the model wrote.

    RequestError for more questions than there are, UnsupportedError where no program can be run.
    """
    chosen = problems()
    chosen = chosen[: _count("humaneval", questions, len(chosen))]
    unbounded = sandbox.trial()
    answers = model.generate([_prompt(model, question(p), p.prompt) for p in chosen],
                             SamplingParams(max_tokens=max_tokens))
    hits = 0
    for number, (problem, answer) in enumerate(zip(chosen, answers, strict=True), 1):
        hits += sandbox.run(program(problem, answer.text)).passed
        if report:
            report(number, len(chosen))
    cut_off = sum(a.finish_reason == "length" for a in answers)
    return Score("humaneval", len(chosen), proportion(hits, len(chosen)), cut_off, unbounded)


def _prompt(model: LLM, asked: str, text: str) -> list[int] | str:
    """Token ids of the question `asked`; where the model does not chat, the `text` to go on with."""
    try:
        return model.encode_chat([{"role": "user", "content": asked}])
    except UnsupportedError:
        return text


def _count(task: str, questions: int | None, most: int) -> int:
    if questions is None:
        return most
    if not 1 <= questions <= most:
        raise RequestError(f"{task} has 1 to {most} questions here, not {questions}")
    return questions
