"""W8A8 in the compressed-tensors format: what is written, what it decodes to, and that kernels agree on it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from drut import LLM
from drut.errors import UnsupportedError
from drut.formats.decode import decode
from drut.formats.encode import encode
from drut.formats.encoding import W8A8
from drut.model.describe import describe
from drut.model.model import open_model
from drut.model.weights.safetensors import SafetensorsFile
from tests.golden.weights import token_ids
from tests.kernels.rig import usable_isas
from tests.model.convert.test_convert import canonical, checkpoint, converted

NAMES = ["llama_tied", "llama3_gqa", "qwen2_untied", "qwen3_gqa"]
WEIGHTS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
ACTIVATIONS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def w8a8(name: str, folder: Path) -> tuple[Path, Path]:
    """The checkpoint and its conversion."""
    source = checkpoint(name, folder / "source")
    return source, converted(source, folder / "w8a8", "W8A8")


@pytest.mark.parametrize("name", NAMES)
def test_matrices_of_layers_are_rounded_and_all_else_is_kept(tmp_path: Path, name: str) -> None:
    source, out = w8a8(name, tmp_path)
    before, after = canonical(open_model(source)), canonical(open_model(out))
    assert before.keys() == after.keys()
    for role, values in before.items():
        kept = values.ndim == 1 or role in ("embed", "head")
        rounded = values if kept else decode(W8A8, encode(W8A8, values), values.shape[1])
        np.testing.assert_array_equal(after[role], rounded, role)


@pytest.mark.parametrize("name", NAMES)
def test_tensors_and_settings_are_those_of_the_format(tmp_path: Path, name: str) -> None:
    source, out = w8a8(name, tmp_path)
    plain, stored = (SafetensorsFile(folder / "model.safetensors").tensors for folder in (source, out))
    matrices = {key: t.shape for key, t in plain.items() if key.endswith("proj.weight")}
    wanted = {key: ("F32", t.shape) for key, t in plain.items() if key not in matrices}
    wanted |= {key: ("I8", shape) for key, shape in matrices.items()}
    wanted |= {f"{key}_scale": ("F32", (shape[0], 1)) for key, shape in matrices.items()}
    assert {key: (t.encoding, t.shape) for key, t in stored.items()} == wanted
    settings = json.loads((out / "config.json").read_text())["quantization_config"]
    linear, = settings["config_groups"].values()
    assert (settings["quant_method"], settings["format"], settings["ignore"]) == (
        "compressed-tensors", "int-quantized", ["lm_head"])
    assert (linear["targets"], linear["weights"], linear["input_activations"]) == (["Linear"], WEIGHTS, ACTIVATIONS)


def test_a_tied_head_stays_tied(tmp_path: Path) -> None:
    source, out = w8a8("llama_tied", tmp_path)
    tied, files = open_model(source).spec, open_model(out)
    assert files.spec.tied_head
    assert files.spec.parameters() == tied.parameters()
    assert describe(files).quantization == "W8A8"


@pytest.mark.parametrize("name", ["llama_tied", "llama3_gqa"])  # rows of 96 and 192; of 128 and 224
def test_bits_are_equal_on_every_instruction_set(tmp_path: Path, name: str) -> None:
    if not (isas := usable_isas()):
        pytest.skip("the native kernels are not built")
    _, out = w8a8(name, tmp_path)
    ids, first = token_ids(name, "short", 41), None
    for isa in isas:
        with LLM(out, isa=isa, threads=2) as llm:
            first = llm.logits(ids) if first is None else first
            assert (llm.logits(ids, chunk=7) == first).all(), isa


def test_it_is_converted_on(tmp_path: Path) -> None:
    """To the same bytes, to GGUF if an encoding is named, and back to floats."""
    _, out = w8a8("llama_tied", tmp_path)
    again = converted(out, tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()
    with pytest.raises(UnsupportedError, match="is stored as W8A8, which a GGUF file cannot hold"):
        converted(out, tmp_path / "x.gguf")
    first = canonical(open_model(out))
    for role, values in canonical(open_model(converted(out, tmp_path / "x.gguf", "F32"))).items():
        np.testing.assert_array_equal(values, first[role], role)


def test_a_gguf_file_cannot_hold_it(tmp_path: Path) -> None:
    source = checkpoint("llama_tied", tmp_path / "source")
    with pytest.raises(UnsupportedError, match=r"x.gguf: a GGUF file takes F32, .*, not W8A8 \(a directory does\)"):
        converted(source, tmp_path / "x.gguf", "W8A8")
    assert list(tmp_path.iterdir()) == [source]
