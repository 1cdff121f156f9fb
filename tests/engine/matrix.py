"""The exactness matrix: the same requests under settings that must not change a bit, against each request alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drut import LLM, Completion, SamplingParams
from tests.engine.chance import make_llm
from tests.engine.models import said
from tests.engine.pairwise import Factors, Row, all_pairs, suspects
from tests.engine.scripted import SCRIPTS, Scripted

DRAFTS = 5  # maximum number of drafts of a sequence
TOP = 2  # likeliest ids reported where logprobs are on


@dataclass(frozen=True)
class Ask:
    """A prompt and how it is to be answered."""

    prompt: tuple[int, ...]
    params: SamplingParams


@dataclass(frozen=True)
class Sizes:
    """Of a matrix: prompts asked under every setting, how many others keep them company, and tokens of an answer."""

    subjects: Sequence[int]
    company: int
    company_tokens: int
    answer: int
    vocab: int


def text(seed: int, tokens: int, vocab: int) -> tuple[int, ...]:
    dice = random.Random(seed)
    return tuple(dice.randrange(vocab) for _ in range(tokens))


def subjects(sizes: Sizes, row: Row) -> list[Ask]:
    """The requests a row is about, drawn greedily or at temperature 1 with top-p."""
    logprobs = TOP if row["logprobs"] else None
    params = SamplingParams(max_tokens=sizes.answer, temperature=float(str(row["temperature"])), top_p=0.9, seed=7,
                            n=int(str(row["n"])), logprobs=logprobs, ignore_eos=True)
    return [Ask(text(length, length, sizes.vocab), params) for length in sizes.subjects]


def company(sizes: Sizes) -> list[Ask]:
    """Others, each with a prompt and params of its own; some begin as a subject does."""
    dice, vocab, asks = random.Random(1), sizes.vocab, []
    for i in range(sizes.company):
        length = dice.randrange(1, sizes.company_tokens)
        common = text(dice.choice(sizes.subjects), max(sizes.subjects), vocab)[: length - 1 if i % 3 == 0 else 0]
        prompt = (*common, *text(100 + i, length - len(common), vocab))
        asks.append(Ask(prompt, random_params(dice, sizes.answer, vocab)))
    return asks


def random_params(dice: random.Random, most: int, vocab: int) -> SamplingParams:
    """Any sampler, with any change to the logits, in any combination."""
    max_tokens = dice.randrange(1, most + 1)
    ids = [dice.randrange(vocab) for _ in range(4)]
    return SamplingParams(
        max_tokens=max_tokens, ignore_eos=dice.random() < 0.8, seed=dice.randrange(1 << 62),
        temperature=dice.choice([0.0, 0.7, 1.0, 2.0]), top_k=dice.choice([0, 0, 1, 5, 40]),
        top_p=dice.choice([1.0, 1.0, 0.9, 0.3]), min_p=dice.choice([0.0, 0.0, 0.05]),
        repetition_penalty=dice.choice([1.0, 1.0, 1.3]), presence_penalty=dice.choice([0.0, 0.0, 0.5, -1.0]),
        frequency_penalty=dice.choice([0.0, 0.0, 0.7]), stop_token_ids=dice.choice([(), (), ids]),
        logit_bias=dice.choice([None, None, {ids[0]: 3.5, ids[1]: -7.25}]), min_tokens=dice.randrange(max_tokens + 1),
        logprobs=dice.choice([None, None, 0, TOP]), prompt_logprobs=dice.choice([None, None, None, 0, 1]))


class Reference:
    """Each request alone: a sequence at a time, prompt whole, nothing cached, every page kept, eager, one thread.
    Each computed once."""

    def __init__(self, model: str | Path, **settings: Any) -> None:
        """`settings` name the numerics: KV format, backend, instruction set."""
        self._llm = LLM(model, max_seqs=1, chunk_tokens=0, prefix_cache=False, execution="eager", threads=1,
                        overlap=False, window_pages=False, fusion=False, **settings)
        self._known: dict[tuple[Ask, int], list[Completion]] = {}

    @property
    def page_bytes(self) -> int:
        return int(self._llm.engine.cache.pool.memory.page_bytes)

    def answers(self, ask: Ask, choices: int) -> list[Completion]:
        """With logprobs; `choices` of them, of which the first ones count where fewer were asked for."""
        wide = replace(ask, params=replace(ask.params, n=max(choices, ask.params.n), logprobs=TOP))
        key = wide, wide.params.n
        if key not in self._known:
            self._known[key] = self._llm.generate([list(ask.prompt)], wide.params)
        return self._known[key][: ask.params.n]

    def difference(self, ask: Ask, got: Sequence[Completion], choices: int = 1) -> str | None:
        """In words; None where `got` has the same bits."""
        wanted = self.answers(ask, choices)
        if len(got) != len(wanted):
            return f"{len(got)} answers instead of {len(wanted)}"
        for a, b in zip(got, wanted, strict=True):
            where = f"choice {b.index} of {len(ask.prompt)} prompt tokens, {ask.params}"
            if said(a, scores=False) != said(b, scores=False):
                return f"{where}: {a.token_ids} instead of {b.token_ids}"
            scores = None if ask.params.logprobs is None else narrowed(b, ask.params.logprobs)
            if (a.logprobs, a.prompt_logprobs) != (scores, b.prompt_logprobs):
                return f"{where}: other logprobs"
        return None

    def close(self) -> None:
        self._llm.close()


def narrowed(answer: Completion, top: int) -> list[dict[int, Any]]:
    """The entries had only `top` of the likeliest ids been asked for."""
    entries = zip(answer.token_ids, answer.logprobs or (), strict=True)
    return [{i: p for i, p in entry.items() if i == token or p.rank <= top} for token, entry in entries]


@contextmanager
def engine(model: str | Path, row: Row, **settings: Any) -> Iterator[LLM]:
    """An LLM as `row` says, watched for corruption; the idle invariant must hold in the end."""
    drafts = str(row.get("drafts", "none"))
    row_settings = {"speculate": f"ngram:k={DRAFTS}" if drafts in SCRIPTS else drafts,
                    "chunk_tokens": row["chunk"], "preempt": float(str(row["preempt"])), "overlap": row["overlap"],
                    "multi_step": row["multi_step"], "continuous_batching": row.get("continuous", True),
                    **{name: row[name] for name in ("threads", "execution", "isa", "window_pages", "fusion")
                       if name in row}}
    with make_llm(model, debug_kv=True, **row_settings, **settings) as llm:
        yield llm
        llm.engine.check_idle()
        for pool in llm.engine.cache.pools:
            assert pool.free + pool.cached == pool.total, "something was left behind"


def prepare(llm: LLM, row: Row, asks: Sequence[Ask]) -> None:
    """The prefix cache as `row` has it: cold, warm with every prompt, or half of that evicted."""
    if row["prefix"] == "cold":
        return
    llm.generate([list(ask.prompt) for ask in asks], SamplingParams(max_tokens=1, temperature=0))
    if row["prefix"] == "half evicted":
        cache = llm.engine.cache
        for group in range(len(cache.pools)):
            for _ in range(cache.evictable(group) // 2):
                cache.evict(group)


def draft(llm: LLM, row: Row, asks: Sequence[tuple[Ask, int]], reference: Reference) -> None:
    """Replaces the drafter by one that knows the answers, where the row has a script for it. `asks`: with choices."""
    script = SCRIPTS.get(str(row.get("drafts")))
    if script is not None:
        known = [[*ask.prompt, *answer.token_ids]
                 for ask, choices in asks for answer in reference.answers(ask, choices)]
        llm.engine.speculation.use(Scripted(known, llm.engine.vocab, script), DRAFTS)


def run_row(llm: LLM, row: Row, sizes: Sizes, reference: Reference) -> list[str]:
    """What differs, in words."""
    mine, others = subjects(sizes, row), company(sizes)
    prepare(llm, row, [*mine, *others])
    draft(llm, row, [(ask, 3) for ask in mine] + [(ask, 1) for ask in others], reference)
    size = int(str(row["batch"]))
    share = min(len(mine), max(1, size // 2))
    found = []
    for first in range(0, len(mine), share):
        batch = mine[first : first + share] + others[: size - share]
        random.Random(size).shuffle(batch)
        got = iter(llm.generate([list(ask.prompt) for ask in batch], [ask.params for ask in batch]))
        for ask in batch:
            answer = [next(got) for _ in range(ask.params.n)]
            different = reference.difference(ask, answer, choices=3 if ask in mine else 1)
            found += [different] if different else []
    return found


def run_matrix(model: str | Path, factors: Factors, sizes: Sizes, reference: Reference, *, seed: int = 0,
               **settings: Any) -> None:
    """Every pair of `factors` at least once; AssertionError naming what the rows that differ have in common."""
    rows = all_pairs(factors, seed)
    failed: list[tuple[Row, str]] = []
    for row in rows:
        try:
            with engine(model, row, **settings) as llm:
                found = run_row(llm, row, sizes, reference)
        except Exception as error:
            error.add_note(f"in {row}")
            raise
        if found:
            failed.append((row, f"{len(found)} requests differ, the first: {found[0]}"))
    if failed:
        named = ", ".join(suspects(rows, [row for row, _ in failed]))
        head = f"{len(failed)} of {len(rows)} runs differ; suspects: {named}"
        raise AssertionError("\n  ".join([head, *(f"{row}\n    {what}" for row, what in failed)]))
