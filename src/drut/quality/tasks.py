"""GSM8K: grade-school sums, answered in words and read for their last number.

The first questions of the test set, whose answers stand here. HumanEval is not scored: its answers are programs, and
running what a model wrote needs a sandbox that this package does not have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from drut.bench.workloads.packed import read_jsonl
from drut.engine.llm import LLM
from drut.engine.params import SamplingParams
from drut.errors import RequestError
from drut.quality.estimate import Estimate, proportion

# By question; from openai/grade-school-math, grade_school_math/data/test.jsonl, MIT (data/SOURCES.md).
GSM8K_ANSWERS = (
    18, 3, 70000, 540, 20, 64, 260, 160, 45, 460, 366, 694, 13, 18, 60, 125, 230, 57500, 7, 6, 15, 14, 7, 8, 26, 2,
    243, 16, 25, 104, 109, 80, 35, 70, 23, 9, 75, 2, 10, 18, 8, 200, 26, 48, 20, 104, 163, 800, 8, 30, 294, 5, 15, 40,
    40, 14, 3, 83,
)  # fmt: skip
ASK = "\nThink step by step, then end with a line: The answer is NUMBER."
_ANSWER = re.compile(r"answer is[^0-9-]{0,20}(-?[0-9][0-9,]*(?:\.[0-9]+)?)", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?")


class Score(msgspec.Struct, frozen=True):
    task: str
    questions: int
    correct: Estimate
    unfinished: int  # answers that were cut off at their longest


def gsm8k(model: LLM, questions: int, max_tokens: int = 512) -> Score:
    """Greedy answers through the chat template, all at once. RequestError for more questions than have answers."""
    if not 1 <= questions <= len(GSM8K_ANSWERS):
        raise RequestError(f"gsm8k has 1 to {len(GSM8K_ANSWERS)} questions here, not {questions}")
    asked: Sequence[str] = read_jsonl("gsm8k")[:questions]
    prompts = [model.encode_chat([{"role": "user", "content": question + ASK}]) for question in asked]
    answers = model.generate(prompts, SamplingParams(max_tokens=max_tokens))
    hits = sum(number_in(a.text) == right for a, right in zip(answers, GSM8K_ANSWERS, strict=False))
    cut_off = sum(a.finish_reason == "length" for a in answers)
    return Score("gsm8k", questions, proportion(hits, questions), cut_off)


def number_in(text: str) -> float | None:
    """The number that "the answer is" is followed by the last time, else the last number there is."""
    found = _ANSWER.findall(text) or _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None
