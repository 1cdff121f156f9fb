"""From metadata to a spec, and from roles to tensors; what a family cannot run is refused by name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.errors import DrutError, ModelFileError, UnsupportedError
from drut.kernels.numpy.backend import NumpyBackend
from drut.model.families import family_of_gguf, family_of_hf
from drut.model.families.table import Stored
from drut.model.roles import expected_shapes
from drut.model.spec import ModelSpec
from drut.model.weights.loader import check_tensors, load_weights
from drut.model.weights.source import TensorInfo
from tests.golden import as_gguf
from tests.golden.weights import NAMES, config, tensors

ROUNDED = ("llama3_gqa", "phi3_beyond", "phi3_within")  # of whose rope a GGUF file keeps factors, in fp32
PLAIN = [name for name in as_gguf.GGUF_NAMES if name not in ROUNDED]
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass
class Source:
    """A weight file of fp32 tensors."""

    arrays: dict[str, np.ndarray]

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: TensorInfo(name, a.shape, "F32", 0, a.nbytes) for name, a in self.arrays.items()}

    def raw(self, name: str) -> np.ndarray:
        return self.arrays[name].reshape(-1).view(np.uint8)

    def columns(self, name: str) -> None: ...

    def release(self, name: str) -> None: ...

    def close(self) -> None: ...


def hf(cfg: dict[str, object]) -> ModelSpec:
    return family_of_hf(cfg["architectures"][0]).from_hf(cfg, "tiny")


def gguf(
    name: str, changes: Mapping[str, object] = NOTHING, extra: Mapping[str, np.ndarray] = NOTHING
) -> ModelSpec:
    metadata = as_gguf.metadata(name) | changes
    source = Source(dict(as_gguf.stored(name)) | extra)
    return family_of_gguf(metadata["general.architecture"]).from_gguf(metadata, source, "tiny")


def test_qwen2_has_biases_and_qwen3_norms() -> None:
    two, three = hf(config("qwen2_tied")).layers[0].mixer, hf(config("qwen3_gqa")).layers[0].mixer
    assert (two.qkv_bias, two.qk_norm, two.head_dim) == (True, "", 16)
    assert (three.qkv_bias, three.qk_norm, three.head_dim) == (False, "head", 48)


def test_heads_of_a_qwen3_config_without_their_size_have_128_elements() -> None:
    cfg = config("qwen3_gqa")
    del cfg["head_dim"]
    assert hf(cfg).layers[0].mixer.head_dim == 128


@pytest.mark.parametrize("name", PLAIN)
def test_both_containers_tell_the_same_spec(name: str) -> None:
    ours, theirs = hf(config(name)), gguf(name)
    assert dataclasses.replace(ours, architecture=theirs.architecture, family=theirs.family) == theirs


@pytest.mark.parametrize("name", [name for name in NAMES if "quantization_config" not in config(name)])
def test_every_tensor_has_its_role(name: str) -> None:
    spec = hf(config(name))
    family = family_of_hf(spec.architecture)
    files = [(family.hf_table(spec), tensors(name))]
    if name in as_gguf.GGUF_NAMES:
        files.append((family_of_gguf(as_gguf.architecture(name)).gguf_table(spec), as_gguf.stored(name)))
    for table, stored in files:
        arrays = {tensor: array for tensor, array in stored if not tensor.startswith("rope_")}
        shapes = expected_shapes(spec)
        assert table.keys() == shapes.keys()
        assert {tensor for role, s in table.items() for tensor in s.names(shapes[role][0])} == arrays.keys()
        check_tensors(spec, Source(arrays), table, "tiny")


@pytest.mark.parametrize(
    ("changes", "dense"),
    [({}, []), ({"mlp_only_layers": [1]}, [1]), ({"decoder_sparse_step": 3}, [0, 1, 3]),
     ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, [0, 2, 3])],
)
def test_which_layers_have_experts(changes: dict[str, object], dense: list[int]) -> None:
    spec = hf(config("qwen3_moe") | {"num_hidden_layers": 4} | changes)
    assert [i for i, layer in enumerate(spec.layers) if layer.ffn.kind == "gated"] == dense
    assert spec.layers[dense[0]].ffn.width == 144 if dense else True


def test_layers_that_draft_are_no_layers_of_the_model() -> None:
    tensors_of = as_gguf.stored("glm4_moe")
    keys = as_gguf.metadata("glm4_moe")
    keys |= {"glm4moe.block_count": 4, "glm4moe.nextn_predict_layers": 1}
    arrays = dict(tensors_of) | {"blk.3.attn_q.bias": np.zeros(4, np.float32)}
    family = family_of_gguf("glm4moe")
    spec = family.from_gguf(keys, Source(arrays), "tiny")
    assert len(spec.layers) == 3
    check_tensors(spec, Source(arrays), family.gguf_table(spec), "tiny")


@pytest.mark.parametrize("name", as_gguf.GGUF_NAMES)
def test_gguf_names_are_those_of_the_format(name: str) -> None:
    arch = next(a for a, named in MODEL_ARCH_NAMES.items() if named == as_gguf.architecture(name))
    known = {TENSOR_NAMES[kind] for kind in MODEL_TENSORS[arch]}
    assert {re.sub(r"blk\.\d+", "blk.{bid}", tensor).rsplit(".", 1)[0] for tensor, _ in as_gguf.stored(name)} <= known


@given(heads=st.integers(1, 5), half=st.integers(1, 6), width=st.integers(1, 3))
def test_interleaved_rows_come_back_in_order(heads: int, half: int, width: int) -> None:
    rows = np.arange(heads * 2 * half * width).reshape(-1, width)
    stored = rows.reshape(heads, 2, half, width).swapaxes(1, 2).reshape(rows.shape)
    order = Stored("q", interleaved_heads=heads).row_order(len(rows))
    assert order is not None
    assert np.array_equal(stored[order], rows)


def test_only_llama_files_interleave_rows() -> None:
    llama, qwen = hf(config("llama3_gqa")), hf(config("qwen2_tied"))
    interleaved = {r: s.interleaved_heads for r, s in family_of_gguf("llama").gguf_table(llama).items()}
    assert {r: n for r, n in interleaved.items() if n} == {
        f"layers.{i}.{role}": heads for i in range(2) for role, heads in (("q", 4), ("k", 2))
    }
    assert not any(s.interleaved_heads for s in family_of_gguf("qwen2").gguf_table(qwen).values())


WINDOWED = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}


@pytest.mark.parametrize(
    "changes",
    [
        WINDOWED,
        WINDOWED | {"max_window_layers": 0, "use_sliding_window": False},
        WINDOWED | {"max_window_layers": 0, "sliding_window": 1024},
        WINDOWED | {"max_window_layers": 0, "sliding_window": None},
        WINDOWED | {"max_window_layers": 0, "layer_types": ["full_attention"] * 2},
    ],
    ids=["past the last layer", "unused", "as wide as the context", "none", "types say full"],
)
def test_windows_that_no_layer_has_are_accepted(changes: dict[str, object]) -> None:
    assert hf(config("qwen2_tied") | changes) == hf(config("qwen2_tied"))


REFUSED_HF = [
    ("qwen3_gqa", {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types: 'chunked_attention'"),
    ("qwen3_gqa", {"architectures": ["Qwen9MoeForCausalLM"]}, "Qwen9MoeForCausalLM"),
    ("qwen3_gqa", {"architectures": ["Qwen3NextForCausalLM"]}, "gated delta"),
    ("qwen3_gqa", {"architectures": ["DeepseekV3ForCausalLM"]}, "latent attention"),
    ("qwen3_gqa", {"architectures": ["Lfm2ForCausalLM"]}, "short convolutions"),
    ("qwen2_tied", {"rope_scaling": {"type": "mrope"}}, "'mrope'"),
    ("qwen2_tied", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ("qwen2_tied", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping '30.0'"),
    ("llama_tied", {"sliding_window": 64}, "sliding_window '64'"),
    ("llama_tied", {"residual_multiplier": 0.5}, "residual_multiplier '0.5'"),
    ("llama_tied", {"num_local_experts": 8}, "num_local_experts '8'"),
    ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("starcoder2", {"hidden_act": "relu"}, "hidden_act 'relu'"),
    ("granite", {"attention_multiplier": 0.0}, "softmax_scale 0.0 of attention"),
    ("phi3", {"num_attention_heads": 4, "num_key_value_heads": 3}, "4 heads do not divide"),
]
REFUSED_GGUF = [
    ("qwen2_tied", {"qwen2.rope.scaling.type": "mrope"}, "'mrope'"),
    ("qwen2_tied", {"general.architecture": "mamba2"}, "Mamba"),
    ("qwen3_gqa", {"qwen3.attention.sliding_window": 64}, "qwen3.attention.sliding_window 64"),
    ("qwen3_gqa", {"qwen3.expert_count": 8}, "qwen3.expert_count"),
    ("qwen3_gqa", {"qwen3.attention.value_length": 64}, "qwen3.attention.value_length"),
    ("qwen2_tied", {"general.architecture": "qwen9moe"}, "'qwen9moe'"),
]


@pytest.mark.parametrize(("name", "changes", "said"), REFUSED_HF, ids=lambda v: v if isinstance(v, str) else "")
def test_a_config_is_refused_by_name(name: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        hf(config(name) | changes)


@pytest.mark.parametrize(("name", "changes", "said"), REFUSED_GGUF, ids=lambda v: v if isinstance(v, str) else "")
def test_a_gguf_file_is_refused_by_name(name: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        gguf(name, changes)


DAMAGED = [
    ("gemma2", {"num_attention_heads": -4}, "num_attention_heads is -4"),
    ("gemma3", {"num_key_value_heads": 0}, "num_key_value_heads is 0"),
    ("gemma3", {"sliding_window_pattern": 0, "layer_types": None}, "sliding_window_pattern is 0"),
    ("gemma3", {"layer_types": ["full_attention"]}, "layer_types has 1 entries for 6 layers"),
    ("gemma2", {"query_pre_attn_scalar": float("nan")}, "query_pre_attn_scalar"),
    ("granite", {"residual_multiplier": float("nan")}, "residual_multiplier"),
    ("granite", {"logits_scaling": 0.0}, "divided by 0"),
    ("cohere2", {"logit_scale": float("inf")}, "logit_scale"),
    ("mistral_window", {"sliding_window": -1}, "sliding_window is -1"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers is not 0 or 1 for each of 4"),
    ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 0}, "no_rope_layer_interval is 0"),
    ("glm4", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 1.5}}, "partial_rotary_factor is 1.5"),
    ("phi3_beyond", {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
     "short_factor has 1 values, expected 12"),
    ("phi3_beyond", {"rope_scaling": {"type": "longrope", "short_factor": [0.0] * 12, "long_factor": [1.0] * 12}},
     "short_factor holds a value that is not positive"),
    ("llama_yarn_biases", {"rope_parameters": {"rope_type": "yarn", "factor": -1.0,
                                               "original_max_position_embeddings": 64}}, "factor is -1.0"),
    ("llama_yarn_biases", {"rope_parameters": {"rope_type": "yarn"}}, "'factor' is missing"),
    ("llama_yarn_biases", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 1},
     "original_max_position_embeddings is 1"),
]


@pytest.mark.parametrize(("name", "changes", "said"), DAMAGED, ids=lambda v: v if isinstance(v, str) else "")
def test_a_damaged_config_is_one_line_that_names_the_key(name: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(ModelFileError, match=said) as caught:
        hf(config(name) | changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "tensor", "change", "said"),
    [("phi3", "model.layers.1.self_attn.qkv_proj.weight", None, "is missing"),
     ("phi3", "model.layers.1.self_attn.qkv_proj.weight", np.zeros((200, 80), np.float32), r"expected \[240, 80\]"),
     ("gemma2", "model.layers.0.pre_feedforward_layernorm.weight", None, "is missing"),
     ("gemma2", "model.embed_tokens.weight", np.zeros((99, 80), np.float32), r"shape \[99, 80\], expected \[131, 80\]"),
     ("olmo2", "model.layers.0.self_attn.q_norm.weight", np.zeros(16, np.float32), r"shape \[16\]"),
     ("starcoder2", "model.norm.bias", None, "is missing"),
     ("llama_tied", "model.layers.0.self_attn.q_norm.weight", np.zeros(16, np.float32), "is not supported by family"),
     ("llama_tied", "adapter.lora_A.weight", np.zeros((4, 4), np.float32), "is not supported by family")],
)
def test_tensors_that_do_not_fit_are_named(name: str, tensor: str, change: np.ndarray | None, said: str) -> None:
    spec, arrays = hf(config(name)), dict(tensors(name))
    if change is None:
        del arrays[tensor]
    else:
        arrays[tensor] = change
    with pytest.raises(DrutError, match=f"tensor '{tensor}'.*{said}"):
        check_tensors(spec, Source(arrays), family_of_hf(spec.architecture).hf_table(spec), "tiny")


def test_a_norm_of_no_numbers_is_named() -> None:
    arrays = dict(tensors("olmo2"))
    arrays["model.norm.weight"] = np.full(80, np.nan, np.float32)
    spec = hf(config("olmo2"))
    with pytest.raises(ModelFileError, match=r"tensor 'model\.norm\.weight' has a value that is not finite"):
        load_weights(spec, Source(arrays), family_of_hf(spec.architecture).hf_table(spec), NumpyBackend(), "tiny")


def test_a_vocabulary_larger_than_the_embedding_is_damaged() -> None:
    with pytest.raises(ModelFileError, match=r"the vocabulary has 999 tokens, tensor 'token_embd\.weight' 241 rows"):
        gguf("qwen2_tied", {"tokenizer.ggml.tokens": ["t"] * 999})


def test_longrope_takes_the_factors_of_the_length_it_serves() -> None:
    spec = hf(config("phi3_within"))
    rope = spec.ropes[0]
    assert (rope.original_context, spec.within(512).ropes[0].inv_freq) == (512, rope.inv_freq)
    assert rope.long is not None
    assert spec.within(513).ropes == (rope.long,)
    assert spec.within(513) == spec.within(513).within(513)


def test_a_model_without_heads_is_damaged() -> None:
    with pytest.raises(ModelFileError, match="num_attention_heads is 0"):
        hf(config("qwen2_tied") | {"num_attention_heads": 0})
    with pytest.raises(ModelFileError, match=r"qwen2\.attention\.head_count is 0"):
        gguf("qwen2_tied", {"qwen2.attention.head_count": 0})


@pytest.mark.parametrize(
    ("name", "tensor"), [("qwen3_gqa", "blk.0.attn_q.bias"), ("qwen2_tied", "blk.1.attn_output.bias"),
                         ("llama_tied", "blk.0.attn_q.bias")]
)
def test_a_bias_the_family_would_leave_out_is_refused(name: str, tensor: str) -> None:
    spec, arrays = gguf(name), dict(as_gguf.stored(name)) | {tensor: np.ones(96, np.float32)}
    with pytest.raises(UnsupportedError, match=f"tensor '{tensor}'"):
        check_tensors(spec, Source(arrays), family_of_gguf(spec.architecture).gguf_table(spec), "tiny")


@pytest.mark.parametrize(
    ("name", "tensor"), [("qwen2_tied", "blk.1.attn_k.bias"), ("qwen3_gqa", "blk.0.attn_q_norm.weight")]
)
def test_a_missing_bias_or_norm_is_named(name: str, tensor: str) -> None:
    spec, arrays = gguf(name), dict(as_gguf.stored(name))
    del arrays[tensor]
    with pytest.raises(ModelFileError, match=f"tensor '{tensor}' is missing"):
        check_tensors(spec, Source(arrays), family_of_gguf(spec.architecture).gguf_table(spec), "tiny")


WORDS = st.text("ab\n\0é", max_size=3)
NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(2**70), 2**70), st.floats())
ROPE = st.dictionaries(st.sampled_from(["rope_type", "rope_theta", "factor"]), st.one_of(NUMBERS, WORDS))
JUNK = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.lists(st.one_of(NUMBERS, WORDS), max_size=2), ROPE)


def complaint(make: Callable[[], object]) -> str:
    """What `make` says against its metadata; nothing if it takes it. Any other error passes through."""
    try:
        make()
    except DrutError as error:
        return str(error)
    return "tiny: "


@settings(max_examples=200, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES), junk=JUNK)
def test_junk_in_a_config_is_a_spec_or_one_line(data: st.DataObject, name: str, junk: object) -> None:
    keys = config(name).keys() | {"head_dim", "layer_types", "rope_scaling", "rope_parameters", "sliding_window",
                                  "no_rope_layers", "partial_rotary_factor"}
    key = data.draw(st.sampled_from(sorted(keys - {"architectures"})))
    said = complaint(lambda: hf(config(name) | {key: junk}))
    assert said.startswith("tiny: ")
    assert "\n" not in said


@settings(max_examples=50, deadline=None)
@given(data=st.data(), name=st.sampled_from(as_gguf.GGUF_NAMES), junk=JUNK)
def test_junk_in_gguf_keys_is_a_spec_or_one_line(data: st.DataObject, name: str, junk: object) -> None:
    keys = [key for key in as_gguf.metadata(name) if key.startswith(f"{as_gguf.architecture(name)}.")]
    key = data.draw(st.sampled_from(keys))
    said = complaint(lambda: gguf(name, {key: junk}))
    assert said.startswith("tiny: ")
    assert "\n" not in said
