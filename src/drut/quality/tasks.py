"""Tasks with scored answers: the first questions of GSM8K."""

from __future__ import annotations

import msgspec

from drut.bench.workloads.gsm8k import ANSWERS, asked, right
from drut.engine.llm import LLM
from drut.engine.request.params import SamplingParams
from drut.errors import RequestError
from drut.quality.estimate import Estimate, proportion


class TaskScore(msgspec.Struct, frozen=True):
    task: str
    questions: int
    correct: Estimate
    unfinished: int  # answers that reached the maximum length


def gsm8k(model: LLM, questions: int | None = None, max_tokens: int = 512) -> TaskScore:
    """Returns the score of greedy answers through the chat template, all in one batch. Raises RequestError for more
    questions than there are."""
    questions = _count("gsm8k", questions, len(ANSWERS))
    prompts = [model.encode_chat([{"role": "user", "content": question}]) for question in asked(questions)]
    answers = model.generate(prompts, SamplingParams(max_tokens=max_tokens, temperature=0.0))
    hits = sum(right(number, answer.text) for number, answer in enumerate(answers))
    cut_off = sum(a.finish_reason == "length" for a in answers)
    return TaskScore("gsm8k", questions, proportion(hits, questions), cut_off)


def _count(task: str, questions: int | None, most: int) -> int:
    if questions is None:
        return most
    if not 1 <= questions <= most:
        raise RequestError(f"{task} has 1 to {most} questions here, not {questions}")
    return questions
