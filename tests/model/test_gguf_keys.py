"""Keys of GGUF files: a size for each layer, which layers have a window, and what would change the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drut import LLM
from drut.errors import ModelFileError, UnsupportedError
from drut.model.families import family_of_gguf
from drut.model.weights.loader import check_tensors
from tests.golden import as_gguf
from tests.golden.weights import token_ids
from tests.model.gguf_writer import ARRAY, F32, INT32, Tensor, Typed
from tests.model.gguf_writer import gguf as file_of
from tests.model.test_families import Source, gguf

LAYERS = 2  # of llama3_gqa
ARRAYS = [("llama.attention.head_count", 4), ("llama.attention.head_count_kv", 2), ("llama.feed_forward_length", None)]


def whole(name: str, key: str) -> int:
    value = as_gguf.metadata(name)[key]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(("key", "value"), ARRAYS)
def test_an_array_of_equal_sizes_is_that_size(key: str, value: int | None, tmp_path: Path) -> None:
    """In the file as in the keys: the same bits."""
    size = whole("llama3_gqa", key)
    assert value in (None, size)
    ids = token_ids("llama3_gqa", "arrays", 30)
    items = [Tensor(n, v.shape[::-1], F32, v.astype("<f4").tobytes()) for n, v in as_gguf.stored("llama3_gqa")]
    metadata = as_gguf.metadata("llama3_gqa")
    logits = []
    for number, changes in enumerate(({}, {key: Typed(ARRAY, [size] * LAYERS, item=INT32)})):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(file_of(metadata | changes, items))
        with LLM(path, kv_dtype="fp32", threads=1) as llm:
            logits.append(llm.logits(ids))
    assert np.array_equal(*logits)


@pytest.mark.parametrize(("key", "value"), ARRAYS)
def test_sizes_that_differ_are_refused(key: str, value: int | None) -> None:
    size = whole("llama3_gqa", key)
    with pytest.raises(UnsupportedError, match=f"{key}: layers differ"):
        gguf("llama3_gqa", {key: [size, 2 * size]})
    with pytest.raises(ModelFileError, match=f"{key} has 3 entries for 2 layers"):
        gguf("llama3_gqa", {key: [size] * 3})
    with pytest.raises(ModelFileError, match="must be an integer"):
        gguf("llama3_gqa", {key: [size, "x"]})


def test_an_array_of_no_layers_is_refused() -> None:
    with pytest.raises(ModelFileError, match="head_count has 0 entries for 0 layers"):
        gguf("llama3_gqa", {"llama.attention.head_count": [], "llama.block_count": 0})


@pytest.mark.parametrize("key", ["expert_used_count", "expert_feed_forward_length"])
def test_experts_may_be_told_layer_by_layer(key: str) -> None:
    key = f"qwen3moe.{key}"
    size = whole("qwen3_moe", key)
    assert gguf("qwen3_moe", {key: [size] * LAYERS}) == gguf("qwen3_moe")
    with pytest.raises(UnsupportedError, match="layers differ"):
        gguf("qwen3_moe", {key: [size, size - 1]})


def test_a_factor_without_a_type_is_linear() -> None:
    changes = {"llama.rope.scaling.factor": 4.0}
    assert gguf("llama_tied", changes) == gguf("llama_tied", {"llama.rope.scale_linear": 4.0})
    ours, plain = (gguf("llama_tied", c).ropes[0].inv_freq for c in (changes, {}))
    assert ours == tuple(f / 4 for f in plain)
    assert gguf("llama_tied", changes | {"llama.rope.scaling.type": "none"}) == gguf("llama_tied")


@pytest.mark.parametrize(("pattern", "windowed"), [
    (3, [True, True, False, True]), (0, [True] * 4), ([True, False, False, True], [True, False, False, True]),
])
def test_a_file_may_name_the_layers_with_a_window(pattern: object, windowed: list[bool]) -> None:
    spec = gguf("gpt_oss", {"gpt-oss.attention.sliding_window_pattern": pattern})
    assert [layer.mixer.window > 0 for layer in spec.layers] == windowed


def test_gemma_2_has_a_window_where_its_file_does_not_say() -> None:
    keys = as_gguf.metadata("gemma2")
    del keys["gemma2.attention.sliding_window"]
    keys["gemma2.context_length"] = 8192
    spec = family_of_gguf("gemma2").from_gguf(keys, Source(dict(as_gguf.stored("gemma2"))), "tiny")
    assert [layer.mixer.window for layer in spec.layers[:2]] == [4096, 0]


def test_gemma_3_without_a_window_turns_all_layers_alike() -> None:
    assert len(gguf("gemma3", {"gemma3.attention.sliding_window": 0}).ropes) == 1


REFUSED = [
    ("llama_tied", {"llama.attention.causal": False}, "attention.causal False"),
    ("llama_tied", {"llama.logit_scale": 0.5}, "logit_scale 0.5"),
    ("llama_tied", {"llama.final_logit_softcapping": 30.0}, "final_logit_softcapping 30.0"),
    ("olmo2", {"olmo2.attention.clamp_kqv": 8.0}, "clamp_kqv 8.0"),
    ("granite", {"granite.rope.scaling.finetuned": False}, "rope.scaling.finetuned False"),
    ("gemma2", {"gemma2.rope.freq_base_swa": 5.0}, "rope.freq_base_swa 5.0"),
    ("gpt_oss", {"gpt-oss.attention.key_length_swa": 32}, "attention.key_length_swa 32"),
    ("phi3_within", {"phi3.rope.scaling.type": "linear", "phi3.rope.scaling.factor": 2.0}, "with tensors of factors"),
    ("qwen3_gqa", {"qwen3.attention.head_count_kv": [1, 2]}, "layers differ"),
]


@pytest.mark.parametrize(("name", "changes", "said"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_a_key_that_would_change_the_answer_is_refused(name: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        gguf(name, changes)


@pytest.mark.parametrize("layer", [0, 5])
def test_only_a_model_that_drafts_has_a_layer_past_its_last(layer: int) -> None:
    for name, refused in (("llama3_gqa", True), ("glm4_moe", bool(layer))):
        spec, arrays = gguf(name), dict(as_gguf.stored(name))
        arrays[f"blk.{len(spec.layers) + layer}.attn_norm.weight"] = np.ones(4, np.float32)
        table = family_of_gguf(as_gguf.architecture(name)).gguf_table(spec)
        if refused:
            with pytest.raises(UnsupportedError, match=r"attn_norm\.weight' is not supported"):
                check_tensors(spec, Source(arrays), table, "tiny")
        else:
            check_tensors(spec, Source(arrays), table, "tiny")
