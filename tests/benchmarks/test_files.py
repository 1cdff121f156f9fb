"""Making other engines' environments and files, as far as it goes without them."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from benchmarks.peers import files, random_checkpoint
from benchmarks.peers.environment import Peer, build, fetch_libraries
from benchmarks.peers.models import CannotMakeError
from benchmarks.peers.recipes import PEERS

from drut.bench.engines.files import load_model_files, save_model_files


def test_random_weights_are_bf16_of_a_normal_distribution() -> None:
    rng = np.random.default_rng(1)
    bits = random_checkpoint.values(rng, (256, 512))
    floats = (bits.astype(np.uint32) << 16).view(np.float32)
    assert abs(float(floats.std()) - random_checkpoint.DEVIATION) < 1e-3
    exact = np.random.default_rng(1).standard_normal((256, 512), np.float32) * np.float32(random_checkpoint.DEVIATION)
    assert np.all(np.abs(floats - exact) <= np.abs(exact) / 256)
    assert set((random_checkpoint.values(rng, (4,)).astype(np.uint32) << 16).view(np.float32)) == {1.0}


def test_a_random_checkpoint_has_the_tokenizer_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HIDDEN": 64, "LAYERS": 2, "HEADS": 4, "KV_HEADS": 2, "HEAD_DIM": 16, "FFN": 96}.items():
        monkeypatch.setattr(random_checkpoint, name, value)
    like = tmp_path / "like"
    like.mkdir()
    (like / "config.json").write_text(json.dumps({"vocab_size": 300, "eos_token_id": 2, "hidden_size": 9}))
    (like / "tokenizer.json").write_text("{}")
    folder = random_checkpoint.write(tmp_path / "made", like)
    config = json.loads((folder / "config.json").read_text())
    assert (config["vocab_size"], config["eos_token_id"], config["hidden_size"]) == (300, 2, 64)
    assert (folder / "tokenizer.json").read_text() == "{}"
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header["model.embed_tokens.weight"]["shape"] == [300, 64]
    assert len([name for name in header if name.startswith("model.layers.")]) == 2 * 9
    assert max(t["data_offsets"][1] for n, t in header.items() if n != "__metadata__") == len(data) - 8 - length


def test_what_cannot_be_made_is_told_and_the_rest_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FOLDER", tmp_path)

    def fail(*_: object) -> None:
        raise CannotMakeError("the converter is not built")

    monkeypatch.setattr(files, "_openvino", fail)
    monkeypatch.setattr(files, "_checkpoint", lambda base, target: target.mkdir())
    monkeypatch.setattr(files, "_gguf", lambda hf, target, encoding: target.touch())
    monkeypatch.setattr(files, "_mlx", lambda hf, target: target.mkdir())
    assert files.make("llama-1b-q4_0") == {"OpenVINO": "the converter is not built"}
    found = files.model_files("llama-1b-q4_0")
    assert found.gguf == tmp_path / "llama-1b-Q4_0.gguf"
    assert found.openvino is None
    assert "random weights" in found.label
    save_model_files(found, tmp_path / "x.json")
    assert load_model_files(tmp_path / "x.json") == found


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.environment.PEERS_DIR", tmp_path / "peers")
    monkeypatch.setattr("benchmarks.peers.environment.ROOT", tmp_path)
    create = venv.create
    monkeypatch.setattr(venv, "create", lambda folder, with_pip, clear: create(folder, clear=clear))  # pip takes long
    peer = Peer("tiny", "Tiny", (), "shim; assert shim.here", files={"shim.py": "here = True\n"},
                links={"bin/tiny": "lib/python3.*/site-packages/shim.py"})
    assert build(peer) is None
    assert peer.ready()
    assert (peer.folder / "bin" / "tiny").read_text() == "here = True\n"
    other = Peer("tiny", "Tiny", (), "nothing_of_that_name")
    assert not other.ready()
    why = build(other)
    assert why is not None
    assert "nothing_of_that_name" in why


def test_libraries_that_cannot_be_had_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.environment.PEERS_DIR", tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    peer = Peer("tiny", "Tiny", (), "x", libraries=(("blas", ("libblas-of-nowhere",), "libblas.so"),))
    assert (fetch_libraries(peer) or "").startswith("blas: ")
    (tmp_path / "blas" / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "blas" / "usr" / "lib" / "libblas.so").touch()
    assert fetch_libraries(peer) is None


def test_recipes_change_with_what_they_say() -> None:
    assert len({peer.recipe for peer in PEERS.values()}) == len(PEERS)
    shim = PEERS["sglang"].files["sgl_kernel/__init__.py"]
    scope: dict[str, object] = {}
    exec(shim, scope)
    with pytest.raises(NotImplementedError):
        scope["__getattr__"]("gemm_cpu")()
