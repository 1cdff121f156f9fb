"""Nothing changes the bits: batch, chunks, prefix cache, preemption, threads, execution, overlap, instruction set,
logprobs, choices, each with each, on tiny checkpoints of each kind of attention and feed-forward and on the real
model."""

from __future__ import annotations

from pathlib import Path

import pytest

from drut import LLM
from drut.kernels.native import library
from tests.engine.matrix import Reference, Sizes, run_matrix, run_row
from tests.engine.models import write_gguf
from tests.golden.weights import config, write_checkpoint
from tests.kernels.rig import usable_isas

pytestmark = pytest.mark.serial

SMOLLM2 = "smollm2-135m-instruct"
ISAS = usable_isas()

COMMON = {
    "batch": (1, 2, 16, 33),
    "chunk": (1, 7, 16, 100, 512, 0),
    "prefix": ("cold", "warm", "half evicted"),
    "preempt": (0.0, 0.3),
    "overlap": (False, True),
    "multi_step": (1, 3, 16),
    "continuous": (True, False),
    "logprobs": (False, True),
    "n": (1, 3),
    "temperature": (0.0, 1.0),
    "drafts": ("none", "auto", "right", "right_so_far", "wrong"),
}
NATIVE = COMMON | {"threads": (1, 2, 3, 8), "execution": ("eager", "replay"), "isa": tuple(ISAS),
                   "fusion": (True, False)}
NUMPY = COMMON | {"batch": (1, 16), "chunk": (1, 100, 0)}

# Name: checkpoint, format of matrices and embedding in a GGUF file (None: a directory of fp32), KV format.
GROUPS = {
    "llama, Q4_1, bf16": ("llama_tied", ("Q4_1", "Q8_0"), "bf16"),
    "llama, fp32, fp32": ("llama_tied", None, "fp32"),
    "qwen3, BF16, bf16": ("qwen3_gqa", ("BF16", "BF16"), "bf16"),
    "qwen3, Q8_0, int8": ("qwen3_gqa", ("Q8_0", "F16"), "int8"),
    "experts, fp32, bf16": ("qwen2_moe", None, "bf16"),
}
KINDS = {
    "windows, soft caps": ("gemma2", ("BF16", "F16"), "int8"),
    "windows, layers without rope": ("cohere2", None, "bf16"),
    "windows, q and k normed over all heads": ("olmo3", ("F16", "BF16"), "fp32"),
    "windows, sinks, experts": ("gpt_oss", None, "bf16"),
    "windows alone": ("mistral_window", None, "int8"),
}
FEWER = NATIVE | {"batch": (1, 16), "chunk": (1, 16, 0), "threads": (1, 3), "multi_step": (1, 16),
                  "window_pages": (True, False)}

native_only = pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")


def make(name: str, formats: tuple[str, str] | None, directory: Path) -> Path:
    if formats is None:
        return write_checkpoint(name, directory / name)
    return write_gguf(name, directory / f"{name}.gguf", *formats)


@native_only
@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_tiny_models(group: str, tmp_path: Path) -> None:
    name, formats, kv_dtype = GROUPS[group]
    path = make(name, formats, tmp_path)
    sizes = Sizes(subjects=(270, 33, 5), company=30, company_tokens=40, answer=8, vocab=config(name)["vocab_size"])
    reference = Reference(path, kv_dtype=kv_dtype, isa="portable")
    run_matrix(path, NATIVE, sizes, reference, seed=list(GROUPS).index(group), kv_dtype=kv_dtype)
    reference.close()


@native_only
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_attention(kind: str, tmp_path: Path) -> None:
    name, formats, kv_dtype = KINDS[kind]
    path = make(name, formats, tmp_path)
    sizes = Sizes(subjects=(70, 5), company=14, company_tokens=40, answer=6, vocab=config(name)["vocab_size"])
    reference = Reference(path, kv_dtype=kv_dtype, isa="portable")
    run_matrix(path, FEWER, sizes, reference, seed=list(KINDS).index(kind), kv_dtype=kv_dtype)
    reference.close()


@pytest.mark.slow
def test_numpy_is_exact_in_itself(tmp_path: Path) -> None:
    path = make("qwen3_gqa", ("Q8_0", "F32"), tmp_path)
    sizes = Sizes(subjects=(40, 17), company=14, company_tokens=20, answer=4, vocab=config("qwen3_gqa")["vocab_size"])
    reference = Reference(path, backend="numpy")
    run_matrix(path, NUMPY, sizes, reference, backend="numpy")
    reference.close()


@native_only
@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("kv_dtype", ["bf16", "int8"])
def test_the_real_model(kv_dtype: str) -> None:
    """On every instruction set but the portable one, which takes seconds for what the others do in one."""
    isas = tuple(isa for isa in ISAS if isa != "portable") or ("portable",)
    factors = NATIVE | {"isa": isas}
    if kv_dtype == "int8":
        factors |= {"batch": (1, 16), "chunk": (7, 16, 0), "threads": (1, 3)}
    sizes = Sizes(subjects=(20, 3), company=31, company_tokens=12, answer=4, vocab=49_000)
    reference = Reference(SMOLLM2, kv_dtype=kv_dtype, isa=isas[-1])
    run_matrix(SMOLLM2, factors, sizes, reference, kv_dtype=kv_dtype)
    reference.close()


@native_only
@pytest.mark.model
@pytest.mark.slow
def test_the_real_model_on_portable_kernels() -> None:
    row = {"batch": 2, "prefix": "cold", "logprobs": True, "n": 1, "temperature": 1.0}
    sizes = Sizes(subjects=(3,), company=1, company_tokens=4, answer=2, vocab=49_000)
    reference = Reference(SMOLLM2, isa="auto")
    with LLM(SMOLLM2, isa="portable", threads=2) as llm:
        assert run_row(llm, row, sizes, reference) == []
    reference.close()
