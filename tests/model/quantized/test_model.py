"""A whole model, its layers quantized, answers as the same numbers in float32 do; its columns may be reordered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from drut import LLM
from drut.errors import ModelFileError
from drut.kernels.native import library
from drut.model.weights.safetensors import SafetensorsFile
from tests.golden.weights import write_checkpoint
from tests.model.quantized.files import As, Tensors, awq, gptq, write

IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


def quantize(folder: Path, kind: str, reorder: str = "by layer") -> Path:
    """`qwen3_gqa` with every linear layer quantized, the codes random."""
    write_checkpoint("qwen3_gqa", folder)
    file = SafetensorsFile(folder / "model.safetensors")
    tensors: Tensors = {t.name: As(t.encoding, file.raw(t.name).view(np.float32).reshape(t.shape).copy())
                        for t in file.tensors.values()}
    for name in [n.removesuffix(".weight") for n in tensors if n.endswith("_proj.weight")]:
        n, k = tensors.pop(f"{name}.weight").bits.shape
        # Layers that read the same activations are reordered alike, as one calibration makes them.
        seed = list(name.rpartition(".")[0].encode()) if reorder == "by layer" else list(name.encode())
        if kind == "awq":
            tensors |= awq(np.random.default_rng(seed), n, k, 32, name).tensors
        else:
            layer = gptq(np.random.default_rng(list(name.encode())), n, k, 32, reorder=False, name=name)
            index = np.random.default_rng([*seed, k]).permutation(layer.tensors[f"{name}.g_idx"])
            tensors |= layer.tensors | {f"{name}.g_idx": index.astype(np.int32)}
        if kind == "bias":
            tensors[f"{name}.bias"] = np.zeros(n, np.float16)
    write(folder / "model.safetensors", tensors)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq" if kind == "awq" else "gptq", "bits": 4, "group_size": 32}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize(("kind", "reorder"), [("awq", ""), ("gptq", "by layer"), ("gptq", "each"),
                                               ("bias", "by layer"), ("mxfp4", "")])
def test_logits(tmp_path: Path, kind: str, reorder: str, backend: str) -> None:
    folder = tmp_path / "m"
    path = write_checkpoint("gpt_oss_mxfp4", folder) if kind == "mxfp4" else quantize(folder, kind, reorder)
    check_logits(path, backend)


def check_logits(folder: Path, backend: str) -> None:
    if backend == "native" and library.load() is None:
        pytest.skip("the native kernels are not built")
    with (LLM(folder, backend=backend, kv_dtype="fp32", threads=2) as quantized,
          LLM(folder, backend=backend, kv_dtype="fp32", threads=2, decoded=True) as plain):
        ours, reference = quantized.logits(IDS), plain.logits(IDS)
        assert quantized.numerics_id != plain.numerics_id
        assert (quantized.logits(IDS, chunk=3) == ours).all()
    error = np.abs(ours - reference).max() / np.abs(reference).max()
    assert 0 < error < 0.03, "as far off as activations in int8 put it"


def test_a_scale_that_is_not_finite_is_named(tmp_path: Path) -> None:
    folder = quantize(tmp_path / "m", "awq")
    file = SafetensorsFile(folder / "model.safetensors")
    info = file.tensors["model.layers.1.mlp.up_proj.scales"]
    with (folder / "model.safetensors").open("r+b") as out:
        out.seek(info.offset)
        out.write(b"\x00\x7e")
    with pytest.raises(ModelFileError, match=r"'model.layers.1.mlp.up_proj.weight': a scale is not finite"):
        LLM(folder, backend="numpy")
