"""Questions with answers that can be scored: the first of GSM8K.

HumanEval is not scored: its answers are programs, and running what a model wrote needs a sandbox that this package
does not have.
"""

from __future__ import annotations

import msgspec

from drut.bench.workloads.gsm8k import ANSWERS, asked, right
from drut.engine.llm import LLM
from drut.engine.params import SamplingParams
from drut.errors import RequestError
from drut.quality.estimate import Estimate, proportion


class Score(msgspec.Struct, frozen=True):
    task: str
    questions: int
    correct: Estimate
    unfinished: int  # answers that were cut off at their longest


def gsm8k(model: LLM, questions: int, max_tokens: int = 512) -> Score:
    """Greedy answers through the chat template, all at once. RequestError for more questions than have answers."""
    if not 1 <= questions <= len(ANSWERS):
        raise RequestError(f"gsm8k has 1 to {len(ANSWERS)} questions here, not {questions}")
    prompts = [model.encode_chat([{"role": "user", "content": question}]) for question in asked(questions)]
    answers = model.generate(prompts, SamplingParams(max_tokens=max_tokens))
    hits = sum(right(number, answer.text) for number, answer in enumerate(answers))
    cut_off = sum(a.finish_reason == "length" for a in answers)
    return Score("gsm8k", questions, proportion(hits, questions), cut_off)
