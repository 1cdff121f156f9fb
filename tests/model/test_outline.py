"""A plan over the outline of weights costs what the plan over the weights does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from drut.config import EngineConfig
from drut.engine.build import record_plan
from drut.engine.memory_plan import MemoryPlan
from drut.kernels.backend import Backend
from drut.kernels.cost import StepShape
from drut.kernels.native import library
from drut.model.model import ModelFiles, open_model
from drut.model.store import resolve
from tests.engine.models import write_gguf
from tests.golden.weights import NAMES, write_checkpoint
from tests.kernels.rig import oracle
from tests.model.quantized.test_model import quantize

SHAPES = (StepShape(1, 1, 7, 7, ((1, 7),)), StepShape(13, 2, 500, 4000, ((12, 300), (1, 200))),
          StepShape(3, 3, 90, 90, ((1, 20), (1, 30), (1, 40))))
GGUF = (("llama_tied", "Q4_1", "Q8_0"), ("qwen3_gqa", "Q8_0", "F16"), ("gemma2", "BF16", "F16"),
        ("llama3_gqa", "Q4_0", "Q5_0"))


@pytest.fixture(scope="module")
def native() -> Iterator[Backend]:
    if library.load() is None:
        pytest.skip("the native library is not built")
    from drut.kernels.native.backend import NativeBackend

    backend = NativeBackend(1)
    yield backend
    backend.close()


def check(path: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    files, config = open_model(path), EngineConfig(kv_cache_gb=0.01)
    needs = MemoryPlan.of(files.spec, config)
    loaded = record_plan(needs, files.load(backend), backend, config)
    outline = record_plan(needs, outlined(files, backend, monkeypatch), backend, config)
    assert list(map(type, outline.ops)) == list(map(type, loaded.ops))
    for shape in SHAPES:
        assert [op.cost(shape) for op in outline.ops] == [op.cost(shape) for op in loaded.ops]
    files.close()


def outlined(files: ModelFiles, backend: Backend, monkeypatch: pytest.MonkeyPatch):
    def read(name: str) -> NDArray[np.uint8]:
        raise AssertionError(f"{name} was read")

    files.check()
    with monkeypatch.context() as patch:
        patch.setattr(type(files), "check", lambda self: None)  # it may look at biases that the model lacks
        patch.setattr(files.source, "raw", read)
        return files.outline(backend)


@pytest.mark.parametrize("name", NAMES)
def test_of_checkpoints(name: str, native: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(write_checkpoint(name, tmp_path / name), native, monkeypatch)


@pytest.mark.parametrize(("name", "matrices", "embedding"), GGUF)
def test_of_gguf_files(name: str, matrices: str, embedding: str, native: Backend, tmp_path: Path,
                       monkeypatch: pytest.MonkeyPatch) -> None:
    check(write_gguf(name, tmp_path / f"{name}.gguf", matrices, embedding), native, monkeypatch)


@pytest.mark.parametrize("kind", ["awq", "gptq", "bias"])
def test_of_quantized_checkpoints(kind: str, native: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(quantize(tmp_path / "m", kind), native, monkeypatch)


@pytest.mark.parametrize("name", ["gemma3", "gpt_oss_mxfp4", "mixtral_gqa", "llama_tied"])
def test_on_numpy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(write_checkpoint(name, tmp_path / name), oracle(), monkeypatch)
    check(quantize(tmp_path / "m", "gptq"), oracle(), monkeypatch)


@pytest.mark.model
def test_of_the_default_model_in_a_blink(native: Backend) -> None:
    files, config = open_model(resolve("smollm2-135m-instruct")), EngineConfig()
    began = time.process_time()
    plan = record_plan(MemoryPlan.of(files.spec, config), files.outline(native), native, config)
    assert time.process_time() - began < 0.5
    assert plan.cost(StepShape(1, 1, 1, 1)).bytes > 50e6
    files.close()
