"""The prompts of a training run, rendered to token ids, and the split into training and held-out ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drut.bench.workloads.jsonl import JsonlRow, read_rows
from drut.engine.llm import LLM
from drut.errors import DrutError, RequestError

HELD_OUT = 20  # one prompt of so many is held out for the evaluation
MOST_HELD_OUT = 64


@dataclass(frozen=True)
class TrainPrompt:
    """The token ids of a prompt and the maximum of tokens of its answer; `line` is the number of its line."""

    line: int
    ids: list[int]
    max_tokens: int


def read_prompts(path: Path, llm: LLM, max_tokens: int) -> list[TrainPrompt]:
    """Returns the prompts of a JSON Lines file: text or `messages`, rendered by the chat template, or token ids.

    A line may have its own max_tokens. Raises RequestError, which names the file and the line.
    """
    prompts = [_prompt(row, llm, max_tokens, f"{path}, line {line}", line) for line, row in read_rows(path)]
    if len(prompts) < 2:
        raise RequestError(f"{path}: one prompt; at least 2 are needed, because some are held out")
    return prompts


def _prompt(row: JsonlRow, llm: LLM, max_tokens: int, where: str, line: int) -> TrainPrompt:
    if (row.prompt is None) == (row.messages is None) or row.conversations is not None:
        raise RequestError(f"{where}: exactly one of prompt and messages is required")
    try:
        if isinstance(row.prompt, list):
            ids = row.prompt
        else:
            ids = llm.encode_chat(row.messages or [{"role": "user", "content": row.prompt}])
    except DrutError as error:
        raise type(error)(f"{where}: {error}") from None
    if not 0 < len(ids) < llm.room:
        raise RequestError(f"{where}: {len(ids)} tokens; a prompt may have 1 to {llm.room - 1}")
    if max(ids) >= llm.files.spec.vocab:
        raise RequestError(f"{where}: token id {max(ids)} is not in the vocabulary of {llm.files.spec.vocab}")
    most = row.max_tokens or row.output_tokens or max_tokens
    return TrainPrompt(line, ids, min(most, llm.room - len(ids)))


def split(prompts: Sequence[TrainPrompt]) -> tuple[list[TrainPrompt], list[TrainPrompt]]:
    """Returns the prompts for training and the held-out ones, which are spread evenly over the file."""
    count = min(max(1, len(prompts) // HELD_OUT), MOST_HELD_OUT)
    held = {int(at) for at in (np.arange(count) + 0.5) * len(prompts) / count}
    return ([p for i, p in enumerate(prompts) if i not in held], [prompts[i] for i in sorted(held)])


def digest(prompts: Sequence[TrainPrompt]) -> str:
    """Returns a digest of all ids and limits: of the file, the chat template and the vocabulary."""
    text = "\n".join(f"{p.max_tokens} {p.ids}" for p in prompts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
