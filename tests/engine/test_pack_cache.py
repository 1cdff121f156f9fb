"""A model whose packed weights come from disk is the same model, and takes no more memory."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from drut import LLM
from drut.formats.encoding import ENCODINGS, encoding
from drut.kernels.native import library
from drut.kernels.native.backend import NativeBackend
from drut.kernels.ops import F32
from drut.model.packs import load
from tests.engine.models import write_gguf
from tests.golden.weights import write_checkpoint
from tests.model.gguf_writer import Tensor, gguf

pytestmark = pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")

IDS = list(range(3, 40))


@pytest.fixture
def packs(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(load, "MIN_BYTES", 0)
    return tmp_path / "home" / "packs"


def logits(path: Path, **settings: object) -> F32:
    with warnings.catch_warnings(), LLM(path, threads=2, kv_cache_gb=0.01, **settings) as llm:
        return llm.logits(IDS)


def no_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    def packed(*_: object, **__: object) -> None:
        raise AssertionError("packed though it was kept")

    monkeypatch.setattr(NativeBackend, "matrix", packed)
    monkeypatch.setattr(NativeBackend, "stack", packed)


def kept(packs: Path) -> list[str]:
    return sorted(p.name for p in packs.glob("*.pack"))


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F16", "BF16", "directory", "experts"])
def test_the_bits_are_the_same(packs, tmp_path, monkeypatch, kind):
    """The rows of q and k are turned in a GGUF file of this family; the directory's q, k and v have biases. Experts
    have biases too, and share tensors."""
    directories = {"directory": "qwen2_untied", "experts": "gpt_oss"}
    path = (write_checkpoint(directories[kind], tmp_path / "q") if kind in directories
            else write_gguf("llama3_gqa", tmp_path / "m.gguf", kind, "Q8_0"))
    off = logits(path, pack_cache=False)
    assert not packs.exists()
    cold = logits(path, pack_cache=True)
    [pack] = kept(packs)
    with monkeypatch.context() as patch:
        no_packing(patch)
        warm = logits(path, pack_cache=True)
    assert off.tobytes() == cold.tobytes() == warm.tobytes()
    (packs / pack).write_bytes(b"x")
    with pytest.warns(UserWarning, match="packed again"):
        assert logits(path, pack_cache=True).tobytes() == off.tobytes()
    assert kept(packs) == [pack]


def test_a_model_at_the_same_path_is_another_model(packs, tmp_path):
    path = tmp_path / "m.gguf"
    found = []
    for kind in ("Q4_1", "Q8_0"):
        path.unlink(missing_ok=True)
        write_gguf("llama3_gqa", path, kind, "Q8_0")
        found.append(logits(path, pack_cache=True))
        assert logits(path, pack_cache=False).tobytes() == found[-1].tobytes()
    assert found[0].tobytes() != found[1].tobytes()
    assert len(kept(packs)) == 2


def test_packing_in_another_way_is_another_pack(packs, tmp_path, monkeypatch):
    path = write_gguf("llama3_gqa", tmp_path / "m.gguf", "Q4_1", "Q8_0")
    logits(path, pack_cache=True)
    packing = NativeBackend.packing
    monkeypatch.setattr(NativeBackend, "packing", lambda self, encodings: packing(self, encodings) + "x")
    logits(path, pack_cache=True)
    assert len(kept(packs)) == 2


def test_a_small_model_and_numpy_keep_nothing(packs, tmp_path, monkeypatch):
    path = write_gguf("llama3_gqa", tmp_path / "m.gguf", "Q4_1", "Q8_0")
    logits(path, pack_cache=True, backend="numpy")
    monkeypatch.undo()
    monkeypatch.setenv("DRUT_HOME", str(packs.parent))
    logits(path, pack_cache=True)
    assert not packs.exists()


def test_a_home_that_cannot_be_written(packs, tmp_path, monkeypatch):
    path = write_gguf("llama3_gqa", tmp_path / "m.gguf", "Q4_1", "Q8_0")
    monkeypatch.setenv("DRUT_HOME", str(path / "home"))
    with pytest.warns(UserWarning, match=r"packed weights are not kept in .*: Not a directory") as caught:
        answer = logits(path, pack_cache=True)
    assert len(caught) == 1
    assert answer.tobytes() == logits(path, pack_cache=False).tobytes()


def test_the_packing_id_tells_layouts_apart(monkeypatch):
    backends = [NativeBackend(threads, "portable") for threads in (1, 2)]
    forms = [*(ENCODINGS.keys() - {"TQ1_0"}),  # which is packed as TQ2_0 is
             "nvfp4", "int4-g64-f16", "int4z-g64-f16", "int4-g64-f32", "int4-row-f16", "fp8-row-f32"]
    seen = {backends[0].packing([encoding(name)]) for name in forms}
    assert len(seen) == len(forms)
    both = [encoding("Q4_0"), encoding("Q8_0")]
    assert backends[0].packing(both) == backends[1].packing([*reversed(both), both[0]])
    before, pack = backends[0].packing(both), NativeBackend._pack

    def two_lanes_swapped(self: NativeBackend, *rest: np.ndarray) -> int:
        bad = pack(self, *rest)
        rest[-1][[4, 8]] = rest[-1][[8, 4]]
        return bad

    monkeypatch.setattr(NativeBackend, "_pack", two_lanes_swapped)
    assert backends[0].packing(both) != before
    for backend in backends:
        backend.close()


HIDDEN, FFN, LAYERS = 256, 16384, 2
PEAK = """
import json, sys
from pathlib import Path
from drut.kernels.native.backend import NativeBackend
from drut.model.model import open_model
from drut.model.packs import PackCache, load

def memory(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

load.MIN_BYTES = 0
packs = PackCache(Path(sys.argv[2]), 1 << 30) if len(sys.argv) > 2 else None
files, backend, before = open_model(sys.argv[1]), NativeBackend(2), memory("VmRSS")
weights = files.load(backend, packs=packs)
print(json.dumps([weights.nbytes, memory("VmRSS") - before, memory("VmHWM") - before]))
"""


@pytest.mark.slow
def test_the_peak_of_memory_is_the_weights(packs, tmp_path):
    path = tmp_path / "wide.gguf"
    path.write_bytes(wide())
    tensor, small = HIDDEN * FFN * 4, 12 << 20
    for turn, folder, most in [("off", [], tensor), ("cold", [packs], tensor), ("warm", [packs], 0)]:
        child = subprocess.run([sys.executable, "-c", PEAK, path, *folder], capture_output=True, text=True, timeout=120)
        assert child.returncode == 0, child.stderr
        packed, resident, peak = json.loads(child.stdout)
        assert packed > 6 * tensor
        assert resident < packed + small, turn
        assert peak < packed + most + small, turn
    [pack] = kept(packs)
    assert 0 < (packs / pack).stat().st_size - packed < small


def wide() -> bytes:
    """A llama of 100 MB, nearly all of it in matrices of 17 MB."""
    rng = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (64, HIDDEN), "output_norm": (HIDDEN,)}
    for i in range(LAYERS):
        block = f"blk.{i}."
        shapes |= {block + name: (HIDDEN,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {block + name: (HIDDEN, HIDDEN) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        shapes |= {block + name: (FFN, HIDDEN) for name in ("ffn_gate", "ffn_up")} | {block + "ffn_down": (HIDDEN, FFN)}
    tensors = [Tensor(f"{name}.weight", shape[::-1], 0, rng.random(shape, np.float32).tobytes())
               for name, shape in shapes.items()]
    keys = {"block_count": LAYERS, "context_length": 64, "embedding_length": HIDDEN, "feed_forward_length": FFN,
            "attention.head_count": 4, "attention.head_count_kv": 4, "attention.layer_norm_rms_epsilon": 1e-5}
    return gguf({"general.architecture": "llama"} | {f"llama.{key}": value for key, value in keys.items()}, tensors)
