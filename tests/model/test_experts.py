"""Experts however a file groups them: the same bits from a tensor each, from all in one, fused or transposed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from drut import LLM
from drut.engine.service.stats import stats
from drut.errors import DrutError, ModelFileError, UnsupportedError
from drut.formats.encoding import encoding
from drut.model.families.table import StoredExperts
from drut.model.model import open_model
from drut.model.weights.experts import check_experts, expert_biases, expert_rows
from drut.model.weights.source import TensorInfo
from tests.golden.as_gguf import metadata, stored
from tests.golden.weights import F32, config, tensors, token_ids, write_checkpoint, write_safetensors
from tests.model.gguf_writer import F32 as F32_TYPE
from tests.model.gguf_writer import Tensor, gguf

NAME = "qwen3_moe"
ONE = re.compile(r"(.+\.experts\.)(\d+)\.(gate|up|down)_proj\.weight")
COUNT, N, K = 3, 4, 6


class Arrays:
    """A source of tensors in memory, which notes what is let go."""

    def __init__(self, **arrays: F32) -> None:
        self._arrays, self.released = arrays, []
        self.tensors = {name: TensorInfo(name, a.shape, "F32", 0, a.nbytes) for name, a in arrays.items()}

    def raw(self, name: str):
        return np.ascontiguousarray(self._arrays[name]).view(np.uint8).ravel()

    def columns(self, name: str) -> None: ...

    def release(self, name: str) -> None:
        self.released.append(name)

    def close(self) -> None: ...


def forms(matrices: F32) -> dict[str, tuple[Arrays, StoredExperts]]:
    """`matrices` (COUNT, 2, N, K), two of each expert: where the second of them lies in each kind of file."""
    second, fused = matrices[:, 1], matrices.reshape(COUNT, 2 * N, K)
    woven = matrices.swapaxes(1, 2).reshape(COUNT, 2 * N, K)
    return {
        "each": (Arrays(**{f"e{i}": m for i, m in enumerate(second)}), StoredExperts("e{}")),
        "all": (Arrays(all=second), StoredExperts("all")),
        "fused": (Arrays(all=fused), StoredExperts("all", part=1, parts=2)),
        "alternating": (Arrays(all=woven), StoredExperts("all", part=1, parts=2, alternating=True)),
        "transposed": (Arrays(all=woven.swapaxes(1, 2)),
                       StoredExperts("all", part=1, parts=2, alternating=True, transposed=True)),
        "fused, each": (Arrays(**{f"e{i}": m for i, m in enumerate(fused)}), StoredExperts("e{}", part=1, parts=2)),
    }


@pytest.mark.parametrize("kind", forms(np.zeros((COUNT, 2, N, K), np.float32)))
def test_the_rows_of_each_expert(kind: str) -> None:
    matrices = np.random.default_rng(0).standard_normal((COUNT, 2, N, K)).astype(np.float32)
    source, form = forms(matrices)[kind]
    for name in form.names(COUNT):
        assert source.tensors[name].shape == form.stored_shape((COUNT, N, K))
    rows = [r.copy() for r in expert_rows(source, form, COUNT, N, encoding("F32"))]
    assert len(source.released) == COUNT, "what is packed is let go before the next is read"
    assert np.array_equal(np.stack(rows).view(np.float32).reshape(COUNT, N, K), matrices[:, 1])


def test_biases_are_split_as_the_rows_are() -> None:
    woven = np.arange(COUNT * 2 * N, dtype=np.float32).reshape(COUNT, 2 * N)
    form = StoredExperts("b", part=1, parts=2, alternating=True)
    assert np.array_equal(expert_biases(Arrays(b=woven), form, (COUNT, N)), woven[:, 1::2])


def test_reordered_columns_are_refused() -> None:
    source = Arrays(all=np.zeros((COUNT, N, K), np.float32))
    source.columns = lambda name: np.arange(K, dtype=np.int32)[::-1]
    with pytest.raises(UnsupportedError, match=r"tensor 'all': experts with their columns in .*act-order"):
        check_experts(source, StoredExperts("all"), (COUNT, N, K), "m")


def write_fused(directory: Path) -> Path:
    """The checkpoint with one tensor for all experts of a layer, gate and up fused."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config(NAME)))
    plain, experts = [], {}
    for name, values in tensors(NAME):
        if found := ONE.fullmatch(name):
            experts.setdefault(found[1], {}).setdefault(found[3], []).append(values)
        else:
            plain.append((name, values))
    for block, parts in experts.items():
        plain.append((block + "gate_up_proj", np.concatenate([np.stack(parts["gate"]), np.stack(parts["up"])], axis=1)))
        plain.append((block + "down_proj", np.stack(parts["down"])))
    write_safetensors(directory / "model.safetensors", plain)
    return directory


def test_a_fused_checkpoint_has_the_same_logits(tmp_path: Path) -> None:
    ids = token_ids(NAME, "fused", 9)
    logits = []
    for path in (write_checkpoint(NAME, tmp_path / "plain"), write_fused(tmp_path / "fused")):
        with LLM(path, kv_dtype="fp32", backend="numpy") as llm:
            logits.append(llm.logits(ids))
            loads = llm.expert_loads()
            assert [counts.sum() for counts in loads.values()] == 2 * [4 * len(ids)]
            assert stats(llm.engine).expert_tokens == {
                layer: (counts.sum(), counts.max()) for layer, counts in loads.items()}
    assert np.array_equal(*logits)


def write_changed(path: Path, keys: Mapping[str, object] = MappingProxyType({}),
                  **changed: tuple[int, ...] | None) -> Path:
    """The checkpoint as a GGUF file with tensors of layer 0 in other shapes (None: left out), and other keys."""
    items = []
    for name, values in stored(NAME):
        short = name.removeprefix("blk.0.").removesuffix(".weight")
        if short in changed:
            if changed[short] is None:
                continue
            values = np.zeros(changed[short], np.float32)
        items.append(Tensor(name, values.shape[::-1], F32_TYPE, values.astype("<f4").tobytes()))
    path.write_bytes(gguf({**metadata(NAME), **keys}, items))
    return path


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"ffn_up_exps": None}, ModelFileError, r"blk\.0\.ffn_up_exps\.weight.*missing"),
        ({"ffn_up_exps": (11, 40, 80)}, ModelFileError, r"ffn_up_exps.*\[11, 40, 80\], expected \[12, 40, 80\]"),
        ({"ffn_down_exps": (12, 40, 80)}, ModelFileError, r"ffn_down_exps.*shape"),
        ({"ffn_gate_inp": (11, 80)}, ModelFileError, r"ffn_gate_inp.*shape"),
        ({"keys": {"qwen3moe.expert_used_count": 13}}, UnsupportedError, "top_k 13 of experts is outside 1..12"),
        ({"keys": {"qwen3moe.expert_used_count": 0}}, UnsupportedError, "top_k 0 of experts"),
        ({"keys": {"qwen3moe.expert_count": 5000}}, UnsupportedError, "experts 5000 is outside"),
        ({"keys": {"qwen3moe.expert_group_count": 5}}, UnsupportedError, "12 experts do not divide into 5 groups"),
        ({"keys": {"qwen3moe.expert_feed_forward_length": 41}}, ModelFileError, r"shape"),
        ({"keys": {"qwen3moe.expert_gating_func": 7}}, UnsupportedError, "expert_gating_func 7"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, changed, kind: type[DrutError], said: str) -> None:
    with pytest.raises(kind, match=said):
        open_model(write_changed(tmp_path / "damaged.gguf", **changed)).check()


def test_all_experts_of_a_layer_are_stored_alike() -> None:
    source = Arrays(e0=np.zeros((N, K), np.float32), e1=np.zeros((N, K), np.float32))
    source.tensors["e1"] = TensorInfo("e1", (N, K), "F16", 0, 2 * N * K)
    with pytest.raises(UnsupportedError, match="'e1' is F16, but the first expert's is F32"):
        check_experts(source, StoredExperts("e{}"), (2, N, K), "here")
