"""The token sample for whose activations weights are smoothed: questions of MT-Bench, which ship with Drut."""

from __future__ import annotations

from drut.bench.workloads.packed import read_jsonl
from drut.model.tokenizer import Tokenizer

CATEGORY = 10  # questions


def calibration_sample(tokenizer: Tokenizer) -> list[int]:
    """Returns the token ids of the first question of each category, about 400."""
    return tokenizer.encode("\n".join(turns[0] for turns in read_jsonl("mt-bench")[::CATEGORY]))
