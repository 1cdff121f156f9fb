"""500 requests over all test checkpoints, each with a digest of its tokens and logprobs: what no change may alter.

    python -m tests.golden.requests --write          write requests.json
    python -m tests.golden.requests --check [NAME ...]   compute again and compare; exit code 1 if any bit differs

Native kernels give the same bits on every instruction set, so one file serves all machines. A change of numerics
rewrites it, and says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from drut import LLM, Completion, Constraint, SamplingParams
from drut.constrain import ReasoningSpec
from drut.engine.request.output import Logprobs
from tests.engine.matrix import Ask, random_params, text
from tests.engine.models import write_bytes_model, write_gguf
from tests.golden.weights import HERE, NAMES, config, write_checkpoint

FILE = HERE / "requests.json"
SMOLLM2 = "smollm2-135m-instruct"
BYTES = "bytes"
KV_DTYPES = ("bf16", "int8", "fp32")
GGUF = {"llama_tied": ("Q4_1", "Q8_0"), "llama3_gqa": ("Q4_0", "Q4_0"), "qwen3_gqa": ("Q8_0", "F16"),
        "gemma2": ("BF16", "F16"), "olmo3": ("F16", "BF16")}
LENGTHS = (5, 16, 33, 70, 270, 300)  # of prompts: within a page, whole pages, past a window, past a KV chunk
OF_EACH, ANSWER = 12, 8
REASONING = ReasoningSpec("<t>", "/>", begun=True, budget=6, closing="/>")
SCHEMA = {"type": "object", "required": ["a", "b"], "additionalProperties": False, "properties": {
    "a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", 1]}, "c": {"type": "boolean"}}}
CONSTRAINTS = (Constraint.json_schema(SCHEMA), Constraint.regex("[0-9]{4}-[01][0-9]"), Constraint.choice(["yes", "no"]),
               Constraint.lark('start: WORD ("," WORD){1,3}\nWORD: /[a-f]{2,5}/\n'))


class Case(NamedTuple):
    """A model with its KV format, and what it is asked."""

    name: str
    kv_dtype: str
    asks: list[Ask]


def cases() -> Iterator[Case]:
    """All tiny checkpoints, some in GGUF formats too, a model of bytes with grammars, and a real one."""
    named = [*NAMES, *(f"{name}.gguf" for name in GGUF)]
    for i, name in enumerate(named):
        vocab = config(name.removesuffix(".gguf"))["vocab_size"]
        yield Case(name, KV_DTYPES[i % 3], list(_random(i, OF_EACH, vocab, LENGTHS, ANSWER)))
    for kv_dtype in ("bf16", "int8"):
        yield Case(SMOLLM2, kv_dtype, list(_random(100, 10, 49_000, (3, 20, 40), 6)))
    yield Case(BYTES, "bf16", list(_constrained()))


def _random(seed: int, count: int, vocab: int, lengths: Sequence[int], answer: int) -> Iterator[Ask]:
    """Any sampler, scored; every third prompt begins as the one before it does."""
    dice, before = random.Random(seed), tuple[int, ...]()
    for i in range(count):
        length = dice.choice(lengths)
        common = before[: length - 1] if i % 3 == 2 else ()
        before = (*common, *text(1000 * seed + i, length - len(common), vocab))
        params = replace(random_params(dice, answer, vocab), n=dice.choice([1, 1, 1, 3]), logprobs=2)
        yield Ask(before, params)


def _constrained() -> Iterator[Ask]:
    for i, prompt in enumerate(("hello", "a longer prompt that fills a page", "x")):
        for j, constraint in enumerate(CONSTRAINTS):
            yield Ask(tuple(prompt.encode()), SamplingParams(
                max_tokens=40, temperature=float(j % 2), seed=10 * i + j, constraint=constraint, logprobs=2,
                reasoning=REASONING if i == 1 else None, top_p=0.9 if i == 2 else 1.0))


def answers(case: Case, folder: Path) -> list[list[Completion]]:
    """The completions of each request, all in one batch."""
    path: str | Path = SMOLLM2
    if case.name == BYTES:
        path = write_bytes_model(folder)
    elif case.name.endswith(".gguf"):
        name = case.name.removesuffix(".gguf")
        path = write_gguf(name, folder / case.name, *GGUF[name])
    elif case.name != SMOLLM2:
        path = write_checkpoint(case.name, folder / case.name)
    with LLM(path, kv_dtype=case.kv_dtype, backend="native") as llm:
        found = iter(llm.generate([list(ask.prompt) for ask in case.asks], [ask.params for ask in case.asks]))
        return [[next(found) for _ in range(ask.params.n)] for ask in case.asks]


def digest(completions: Sequence[Completion]) -> str:
    """Of every bit of the answers: ids, how they ended, logprobs with their ranks and order."""
    words = hashlib.sha256()
    for c in completions:
        words.update(f"{c.index} {c.finish_reason} {c.token_ids}\n".encode())
        for entry in (*(c.logprobs or ()), *(c.prompt_logprobs or ())):
            words.update(_bits(entry))
    return words.hexdigest()[:16]


def _bits(entry: Logprobs | None) -> bytes:
    return b"".join(struct.pack("<idi", token, p.logprob, p.rank) for token, p in (entry or {}).items()) + b"."


def compute(case: Case) -> dict[str, list[object]]:
    """By request: its digest, and the first ids of its first answer, which show where a difference begins."""
    with tempfile.TemporaryDirectory() as folder:
        found = answers(case, Path(folder))
    return {f"{case.name} {case.kv_dtype} {i}": [digest(each), each[0].token_ids[:4]] for i, each in enumerate(found)}


def differences(case: Case) -> list[str]:
    """A line for each request of `case` that has other bits than the file says."""
    committed = json.loads(FILE.read_text())
    return [f"{key}: {found}, committed {committed.get(key)}" for key, found in compute(case).items()
            if committed.get(key) != found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write the file")
    mode.add_argument("--check", action="store_true", help="compare with the committed one")
    parser.add_argument("names", nargs="*", help="checkpoints to check (default: all)")
    args = parser.parse_args()
    if args.write:
        found = {key: value for case in cases() for key, value in compute(case).items()}
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
        FILE.write_text(f"{{\n{lines}\n}}\n")
        print(f"{len(found)} requests")
        return 0
    lines = [line for case in cases() if not args.names or case.name in args.names for line in differences(case)]
    print("\n".join(lines) or "all bits are the same")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
