"""The columns of a comparison: each one's prompts, requests and speeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

SEED = 20
FIRST_PLAIN = 256  # lower ids are special tokens in many vocabularies

Prompts = list[list[int]]


@dataclass(frozen=True)
class Column:
    """`batch` prompts of `prompt` tokens at once and `new_tokens` decoded, repeated `repeats` times.

    Batch 0 is prefill: `repeats` prompts, one after the other, each to its first token.
    """

    name: str
    title: str
    batch: int
    prompt: int
    new_tokens: int = 1
    repeats: int = 1

    def prompts(self, round_name: str, vocab: int) -> list[Prompts]:
        """Returns the prompts of one turn, a list for each repeat: random ids, the same for every engine, different in
        every round."""
        rng = random.Random(f"{SEED} {round_name} {self.name}")
        sizes = [self.repeats] if not self.batch else [self.batch] * self.repeats
        return [[[rng.randrange(FIRST_PLAIN, vocab) for _ in range(self.prompt)] for _ in range(size)]
                for size in sizes]

    def questions(self, prompts: Sequence[Prompts]) -> list[tuple[str, dict[str, Any]]]:
        """Returns the requests to a worker in one turn."""
        if not self.batch:
            return [("prefill", {"prompts": group}) for group in prompts]
        return [("decode", {"prompts": group, "new_tokens": self.new_tokens}) for group in prompts]

    def speed(self, answers: Sequence[dict[str, Any]]) -> float:
        """Returns tokens per second of one turn: prompt tokens until the first token, or tokens decoded by the full
        batch."""
        if not self.batch:
            each = [float(s) for answer in answers for s in answer["seconds"]]
            return self.prompt * len(each) / sum(each)
        tokens, seconds = (sum(float(answer[key]) for answer in answers) for key in ("tokens", "seconds"))
        return tokens / seconds

    def shape(self) -> list[int]:
        """Returns rows, samples, KV tokens and row tokens of a step, in the middle of the turn."""
        if not self.batch:
            return [self.prompt, 1, self.prompt, self.prompt * (self.prompt + 1) // 2]
        context = self.batch * (self.prompt + self.new_tokens // 2)
        return [self.batch, self.batch, context, context]

    def tokens_a_step(self) -> int:
        """Returns the tokens that a step of that shape counts as."""
        return self.batch or self.prompt

    def quick(self) -> Column:
        """Returns a turn of seconds, to check that everything works; its speeds are not meaningful."""
        if not self.batch:
            return replace(self, repeats=1)
        return replace(self, prompt=32, new_tokens=17, repeats=1)

    def warm_up(self) -> Column:
        """Returns a column with as few steps as touch all that a turn will: code, caches, and what is compiled for its
        sizes."""
        return replace(self, prompt=32, new_tokens=9, repeats=1) if self.batch else replace(self, repeats=1)


COLUMNS = {column.name: column for column in (
    Column("prefill", "prefill 512", 0, 512, repeats=2),
    Column("prefill2048", "prefill 2048", 0, 2048),
    Column("prefill4096", "prefill 4096", 0, 4096),
    Column("prefill7600", "prefill 7600", 0, 7600),
    Column("decode1", "decode, batch 1", 1, 128, 65, repeats=2),
    Column("decode8", "decode, batch 8", 8, 128, 65),
    Column("decode32", "decode, batch 32", 32, 128, 65),
)}
