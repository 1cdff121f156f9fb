"""The target's answers, which a drafter learns: generated in batches and stored in shards of token ids and of the
likeliest ids of each position with their logprobs.

A shard is a folder of four arrays that are mapped, not read: `tokens` of all sequences in a row, prompt and answer;
`lengths` (sequences, 2) of prompt and answer; `top_ids` and `top_logprobs` (answer tokens, TOP), of the distribution
from which each answer token came, at temperature 1. The engine reports them anyway: computing the target's logits again
would cost more than the whole training of a student.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drut.engine.llm import LLM
from drut.engine.request.output import Completion
from drut.engine.request.params import SamplingParams
from drut.errors import RequestError
from drut.formats.planes import F32
from drut.kernels.descriptor import MAX_TOP_LOGPROBS
from drut.train.prompts import TrainPrompt

TOP = MAX_TOP_LOGPROBS
SHARD = 256  # prompts of a shard, generated in one call
Report = Callable[[str], None]
NAMES = ("tokens", "lengths", "top_ids", "top_logprobs")


@dataclass(frozen=True)
class Answer:
    """One training sequence: `tokens` (prompt + n,), and for its n answer tokens `top_ids` and `top_logprobs`
    (n, TOP)."""

    tokens: NDArray[np.int32]
    prompt: int
    top_ids: NDArray[np.int32]
    top_logprobs: F32


def sampling(prompt: TrainPrompt, number: int, temperature: float | None, seed: int) -> SamplingParams:
    """Returns the parameters of prompt `number`: each has a seed of its own."""
    return SamplingParams(max_tokens=prompt.max_tokens, temperature=temperature, seed=seed + number)


def generate(llm: LLM, prompts: Sequence[TrainPrompt], folder: Path, *, temperature: float | None, seed: int,
             report: Report) -> None:
    """Generates the answers that `folder` lacks, shard by shard."""
    started, answered, made = time.monotonic(), 0, 0
    for first in range(0, len(prompts), SHARD):
        part, shard = prompts[first : first + SHARD], folder / f"{first // SHARD:05}"
        if shard.exists():
            continue
        params = [replace(sampling(p, first + i, temperature, seed), logprobs=TOP) for i, p in enumerate(part)]
        completions = llm.generate([p.ids for p in part], params)
        _write(shard, part, completions)
        answered, made = answered + len(part), made + sum(c.completion_tokens for c in completions)
        seconds, left = time.monotonic() - started, len(prompts) - first - len(part)
        report(f"answers to {first + len(part)} of {len(prompts)} prompts, {made / seconds:.0f} tokens/s, "
               f"{left * seconds / answered / 60:.1f} minutes left")


def _write(shard: Path, prompts: Sequence[TrainPrompt], completions: Sequence[Completion]) -> None:
    """Writes a shard under another name first, so that one that exists is complete."""
    partial = shard.with_name(f".{shard.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tops = [_top(c) for c in completions]
    arrays = {
        "tokens": np.concatenate([np.array([*p.ids, *c.token_ids], np.int32)
                                  for p, c in zip(prompts, completions, strict=True)]),
        "lengths": np.array([(len(p.ids), len(c.token_ids)) for p, c in zip(prompts, completions, strict=True)],
                            np.int64),
        "top_ids": np.concatenate([ids for ids, _ in tops]),
        "top_logprobs": np.concatenate([logprobs for _, logprobs in tops]),
    }
    for name in NAMES:
        np.save(partial / f"{name}.npy", arrays[name])
    os.rename(partial, shard)


def _top(completion: Completion) -> tuple[NDArray[np.int32], F32]:
    """Returns the likeliest ids of each token and their logprobs, (tokens, TOP); a drawn id of a lower rank is left
    out."""
    assert completion.logprobs is not None
    rows = [sorted(row.items(), key=lambda item: item[1].rank)[:TOP] for row in completion.logprobs]
    ids = np.array([[i for i, _ in row] for row in rows], np.int32)
    logprobs = np.array([[entry.logprob for _, entry in row] for row in rows], np.float32)
    return ids.reshape(len(rows), -1), logprobs.reshape(len(rows), -1)


class AnswerSet:
    """All shards of a folder, in the order of the prompts. Raises RequestError, which names a shard that is damaged."""

    def __init__(self, folder: Path) -> None:
        self._answers = [answer for shard in sorted(folder.glob("[0-9]*")) for answer in _read(shard)]

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, at: int) -> Answer:
        return self._answers[at]

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._answers)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The tokens of each sequence, prompt and answer."""
        return np.array([len(answer.tokens) for answer in self._answers])

    @property
    def answer_tokens(self) -> int:
        return sum(len(answer.top_ids) for answer in self._answers)


def _read(shard: Path) -> Iterator[Answer]:
    try:
        tokens, lengths, top_ids, top_logprobs = (np.lib.format.open_memmap(shard / f"{name}.npy", mode="r")
                                                  for name in NAMES)
    except (OSError, ValueError) as error:
        raise RequestError(f"{shard}: {error}; remove it, and it is generated again") from None
    ends, tops = np.cumsum(lengths.sum(1)), np.cumsum(lengths[:, 1])
    if len(tokens) != ends[-1] or len(top_ids) != tops[-1] or top_ids.shape != top_logprobs.shape:
        raise RequestError(f"{shard}: its arrays do not fit; remove it, and it is generated again")
    for (prompt, answer), end, top in zip(lengths, ends, tops, strict=True):
        if answer:
            yield Answer(tokens[end - prompt - answer : end], int(prompt), top_ids[top - answer : top],
                         top_logprobs[top - answer : top])
