"""Prompts and scoring of GSM8K: grade-school problems, answered in words and scored by their last number."""

from __future__ import annotations

import re

from drut.bench.workloads.packed import read_jsonl

# The answers to the first questions of the test set, in order; from openai/grade-school-math,
# grade_school_math/data/test.jsonl, MIT (data/SOURCES.md).
ANSWERS = (
    18, 3, 70000, 540, 20, 64, 260, 160, 45, 460, 366, 694, 13, 18, 60, 125, 230, 57500, 7, 6, 15, 14, 7, 8, 26, 2,
    243, 16, 25, 104, 109, 80, 35, 70, 23, 9, 75, 2, 10, 18, 8, 200, 26, 48, 20, 104, 163, 800, 8, 30, 294, 5, 15, 40,
    40, 14, 3, 83,
)  # fmt: skip
_ASK = "\nThink step by step, then end with a line: The answer is NUMBER."
_ANSWER = re.compile(r"answer is[^0-9-]{0,20}(-?[0-9][0-9,]*(?:\.[0-9]+)?)", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?")


def asked(questions: int) -> list[str]:
    """Returns the prompts of the first questions; ANSWERS are their answers."""
    rows: list[str] = read_jsonl("gsm8k")
    return [row + _ASK for row in rows[: min(questions, len(ANSWERS))]]


def right(number: int, text: str) -> bool:
    """Returns whether `text` answers question `number` rightly."""
    return number_in(text) == ANSWERS[number]


def number_in(text: str) -> float | None:
    """Returns the number after the last "the answer is", else the last number."""
    found = _ANSWER.findall(text) or _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None
