"""W8A8 checkpoints as compressed-tensors saves them: the numbers of transformers, the tensors of `drut convert`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from drut import LLM
from drut.kernels.native import library
from drut.model.describe import describe
from drut.model.model import open_model
from drut.model.weights.safetensors import SafetensorsFile
from tests.golden.weights import HERE, tensors
from tests.model.convert.test_convert import checkpoint, converted
from tests.model.quantized.files import write

NAME, CASES = "llama_tied", ["layers", "head"]
TOLERANCE = 1e-4  # relative to the largest logit
Golden = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def golden() -> Golden:
    with np.load(HERE / "w8a8.npz") as stored:
        return dict(stored)


def saved(golden: Golden, case: str, folder: Path) -> Path:
    """The directory that compressed-tensors saved."""
    floats, held = dict(tensors(NAME)), {}
    for name in golden[f"{case}/names"].tolist():
        key = name.replace("lm_head.", "model.embed_tokens.")
        dtype = "F32" if key.endswith("_scale") else "I8"
        quantized = golden.get(f"{key}:{dtype}")
        alone = case == "layers" and key.startswith("model.embed_tokens.")
        held[name] = floats[name] if quantized is None or alone else quantized
    folder.mkdir()
    write(folder / "model.safetensors", held)
    (folder / "config.json").write_text(str(golden[f"{case}/config"]))
    return folder


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(golden: Golden, tmp_path: Path, case: str, backend: str) -> None:
    if backend == "native" and library.load() is None:
        pytest.skip("the native kernels are not built")
    folder, ids, wanted = saved(golden, case, tmp_path / "m"), golden["ids"].tolist(), golden[f"{case}/logits"]
    with (LLM(folder, backend=backend, kv_dtype="fp32", threads=1) as llm,
          LLM(folder, backend=backend, kv_dtype="fp32", threads=1, decoded=True) as plain):
        exact, ours = plain.logits(ids), llm.logits(ids)
    largest = np.abs(wanted).max()
    assert np.abs(exact - wanted).max() < TOLERANCE * largest
    assert 0 < np.abs(ours - wanted).max() < 0.06 * largest, "as far off as activations in int8 put it"


def test_a_head_that_was_saved_twice_is_packed_once(golden: Golden, tmp_path: Path) -> None:
    files = open_model(saved(golden, "head", tmp_path / "m"))
    found = describe(files)
    assert (found.tied_head, found.quantization, found.problems) == (True, "W8A8", ())


def test_a_head_in_int8_is_converted_on(golden: Golden, tmp_path: Path) -> None:
    theirs = saved(golden, "head", tmp_path / "theirs")
    for name, info in SafetensorsFile(converted(theirs, tmp_path / "ours") / "model.safetensors").tensors.items():
        assert info.encoding == ("I8" if len(info.shape) == 2 and name.endswith(".weight") else "F32"), name
    mine, other = (json.loads((tmp_path / of / "config.json").read_text())["quantization_config"]
                   for of in ("ours", "theirs"))
    assert settings(mine) == settings(other)


def test_drut_writes_the_same_tensors_and_settings(golden: Golden, tmp_path: Path) -> None:
    """Codes differ by one at most: LLM Compressor's scales are the largest weight over 127.5."""
    theirs = saved(golden, "layers", tmp_path / "theirs")
    ours = converted(checkpoint(NAME, tmp_path / "source"), tmp_path / "ours", "W8A8")
    stored, wanted = (SafetensorsFile(folder / "model.safetensors") for folder in (ours, theirs))
    assert ({name: (t.encoding, t.shape) for name, t in stored.tensors.items()}
            == {name: (t.encoding, t.shape) for name, t in wanted.tensors.items()})
    for name, info in stored.tensors.items():
        if info.encoding == "I8":
            codes, others = (file.raw(name).view(np.int8).astype(int) for file in (stored, wanted))
            assert np.abs(codes - others).max() <= 1, name
    mine, other = (json.loads((folder / "config.json").read_text())["quantization_config"] for folder in (ours, theirs))
    assert {key: mine[key] for key in mine if key != "config_groups"} == {
        key: other[key] for key in mine if key != "config_groups"}
    assert settings(mine) == settings(other)


def settings(config: dict) -> list:
    """The groups without what is null, by target."""
    def plain(value: object) -> object:
        return {k: plain(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value

    return sorted((plain(group) for group in config["config_groups"].values()), key=lambda group: group["targets"])
