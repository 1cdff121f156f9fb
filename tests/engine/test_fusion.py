"""Without fusion the answers have the same bits: norms of all kinds and places, gates and none, experts, windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from drut import LLM, SamplingParams
from drut.kernels.native import library
from tests.engine.matrix import text
from tests.engine.models import said
from tests.golden.weights import config, write_checkpoint

KINDS = ("llama_tied", "qwen3_gqa", "gemma2", "cohere2", "olmo3", "gpt_oss", "qwen2_moe", "starcoder2")
NATIVE = [] if library.load() is None else [(kind, "native") for kind in KINDS]


@pytest.mark.parametrize(("kind", "backend"), [*NATIVE, ("llama_tied", "numpy"), ("olmo3", "numpy")])
def test_the_same_bits_without_fusion(kind: str, backend: str, tmp_path: Path) -> None:
    path, vocab = write_checkpoint(kind, tmp_path / kind), config(kind)["vocab_size"]
    prompts = [list(text(seed, length, vocab)) for seed, length in ((1, 40), (2, 3))]
    params = SamplingParams(max_tokens=6, temperature=1.0, seed=3, logprobs=2, ignore_eos=True)
    answers = []
    for fusion in (True, False):
        with LLM(path, backend=backend, fusion=fusion, threads=2) as llm:
            answers.append([said(answer) for answer in llm.generate(prompts, params)])
    assert answers[0] == answers[1]
