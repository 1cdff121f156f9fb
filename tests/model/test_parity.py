"""The engine computes what `transformers` computes: logits, greedy choices, perplexity."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from drut import LLM, SamplingParams
from drut.kernels.native import library
from drut.model.store import resolve
from tests.golden.as_gguf import GGUF_NAMES, write_gguf
from tests.golden.dequantize import dequantize
from tests.golden.weights import HERE, NAMES, config, digest, write_checkpoint
from tests.golden.windows import ids_digest, mean_nll, windows

TOLERANCE = 1e-4  # relative: max |a - b| / max |b|; fp32 sums taken in another order come to about 1e-6
# Where a model chooses its rope by the length it serves, the length that goes with its golden values.
LENGTHS = {"phi3_within": 512}
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
SMOLLM2 = "smollm2-135m-instruct"

Golden = dict[str, np.ndarray]


def golden(name: str) -> Golden:
    with np.load(HERE / f"{name}.npz") as stored:
        return dict(stored)


def relative_error(ours: np.ndarray, reference: np.ndarray) -> float:
    assert ours.shape == reference.shape
    assert ours.dtype == np.float32
    return float(np.abs(ours - reference).max() / np.abs(reference).max())


@pytest.fixture(scope="module", params=[(n, b) for n in NAMES for b in ("native", "numpy")], ids="-".join)
def tiny(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LLM, Golden]]:
    """Each tiny checkpoint on each backend, with its reference."""
    name, backend = request.param
    if backend == "native" and library.load() is None:
        pytest.skip("the native kernels are not built")
    directory = write_checkpoint(name, tmp_path_factory.mktemp("tiny") / name)
    # Quantized weights take activations in int8: what is compared is the numbers that they stand for.
    decoded = "quantization_config" in config(name)
    with LLM(directory, kv_dtype="fp32", backend=backend, threads=1, max_model_len=LENGTHS.get(name),
             decoded=decoded) as llm:
        yield llm, golden(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_those_of_the_reference(name: str) -> None:
    assert digest(name) == str(golden(name)["weights_sha256"])


@pytest.mark.parametrize("prompt", ["short", "long"])
def test_prompt_logits(tiny: tuple[LLM, Golden], prompt: str) -> None:
    llm, reference = tiny
    wanted = reference[f"{prompt}_logits"]
    logits = llm.logits(reference[f"{prompt}_ids"].tolist())
    assert relative_error(logits[-len(wanted) :], wanted) < TOLERANCE


@pytest.mark.parametrize("chunk", [1, 7])
def test_logits_in_chunks(tiny: tuple[LLM, Golden], chunk: int) -> None:
    llm, reference = tiny
    wanted = reference["short_new_logits"]
    ids = [*reference["short_ids"].tolist(), *reference["short_new_ids"].tolist()[:-1]]
    assert relative_error(llm.logits(ids, chunk=chunk)[-len(wanted) :], wanted) < TOLERANCE


def test_greedy_continuation(tiny: tuple[LLM, Golden]) -> None:
    llm, reference = tiny
    prompts = [reference[f"{prompt}_ids"].tolist() for prompt in ("short", "long")]
    answers = [answer.token_ids for answer in llm.generate(prompts, GREEDY)]
    assert answers == [reference[f"{prompt}_new_ids"].tolist() for prompt in ("short", "long")]


def test_a_gguf_file_of_the_same_weights(tiny: tuple[LLM, Golden], tmp_path: Path) -> None:
    """The same bits, whatever the container names its tensors and in whichever order it keeps their rows."""
    llm, reference = tiny
    name, backend, ids = llm.files.path.name, llm.config.backend, reference["short_ids"].tolist()
    if name not in GGUF_NAMES:
        pytest.skip("GGUF has no keys for it")
    path = write_gguf(name, tmp_path / f"{name}.gguf")
    with LLM(path, kv_dtype="fp32", backend=backend, threads=1, max_model_len=LENGTHS.get(name)) as other:
        logits = other.logits(ids)
    if "rope_freqs.weight" in other.files.source.tensors or "rope_factors_long.weight" in other.files.source.tensors:
        # A file keeps that scaling as factors rounded to fp32.
        assert relative_error(logits, llm.logits(ids)) < 1e-5
    else:
        assert np.array_equal(logits, llm.logits(ids))


@pytest.mark.model
def test_smollm2_logits_with_fp32_weights_and_kv(tmp_path: Path) -> None:
    reference = golden("smollm2")
    with LLM(dequantize(resolve(SMOLLM2), tmp_path), kv_dtype="fp32") as llm:
        logits = llm.logits(reference["ids"].tolist())
    assert logits.argmax(axis=1).tolist() == reference["best_ids"].tolist()
    wanted = reference["logits"]
    assert relative_error(logits[-len(wanted) :, reference["columns"]], wanted) < TOLERANCE


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_perplexity_as_shipped() -> None:
    """Q4_1 with int8 activations and a bf16 cache is within 0.75 % of the dequantized fp32 model. The order of sums
    alone moves the figure by 0.2 %."""
    reference = json.loads((HERE / "smollm2_nll.json").read_text())
    with LLM(SMOLLM2) as llm:
        assert llm.tokenizer is not None
        rows = windows(llm.tokenizer.encode)
        assert ids_digest(rows) == reference["ids_sha256"]
        nll = [mean_nll(llm.logits(row, chunk=len(row)), row) for row in rows]
    assert math.exp(np.mean(nll) - np.mean(reference["nll"])) == pytest.approx(1.0, abs=0.0075)
