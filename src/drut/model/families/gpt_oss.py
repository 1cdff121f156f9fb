"""gpt-oss: sinks, a window on every other layer, biases everywhere, experts with a clamped activation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drut.errors import UnsupportedError
from drut.kernels.ops import Routing
from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.experts import COUNTS, gguf_ffn, hf_count
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored, StoredExperts
from drut.model.ffns.moe import MoeFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional, require
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "gpt_oss", "gpt-oss"
HF_ARCHITECTURES: tuple[str, ...] = ("GptOssForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("gpt-oss",)

KNOWN = ("attention_bias", "sliding_window", "layer_types", *COUNTS)
DEFAULTS: Metadata = {"attention_bias": True, "head_dim": 64, "sliding_window": 128, "num_key_value_heads": 8}
ROPE: Metadata = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                  "original_max_position_embeddings": 4096}
ACTIVATION_SETTINGS = {"swiglu_limit": 7.0, "swiglu_alpha": 1.702}  # the kernels know no others
ACTIVATION = "clamped_swiglu"


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, KNOWN, DEFAULTS)
    if not optional(config, "attention_bias", bool, path, True):
        raise UnsupportedError(f"{path}: attention_bias false is not supported by family {NAME}")
    for key, value in ACTIVATION_SETTINGS.items():
        if optional(config, key, float, path, value) != value:
            raise UnsupportedError(f"{path}: {key} is not {value}")
    _, windows = hf.layer_windows(config, s, NAME, path, _windowed)
    rope = hf_rope.rope(config, s, NAME, path, theta=150000.0, default=ROPE)
    routing = Routing(hf_count(config, path), require(config, "num_experts_per_tok", int, path))
    ffn = MoeFfn(s.ffn, routing, bias=True, activation=ACTIVATION)
    return _spec(s, rope, windows, ffn, hf.rms_eps(config, path, 1e-5), path)


def _windowed(layer: int) -> bool:
    return layer % 2 == 0


def _spec(s: hf.Sizes, rope: Rope, windows: Sequence[int], ffn: MoeFfn, eps: float, path: str) -> ModelSpec:
    layers = [LayerSpec(AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope,
                                       softmax_scale=hf.inverse_root(s.head_dim), qkv_bias=True, o_bias=True,
                                       window=window, sinks=True), ffn) for window in windows]
    return hf.spec(s, NAME, layers, eps, path)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME, experts=True)
    ffn = replace(gguf_ffn(keys, source), bias=True, activation=ACTIVATION)
    rope = gguf.rope(keys, s, source, theta=150000.0, truncate=False)  # as the model was trained
    return _spec(s, rope, gguf.windows(keys, s, gguf.windowed(keys, s, 2).__getitem__), ffn, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint, in which rows of gate and up alternate; rows are
    inputs unless quantized."""
    def part(name: str, part: int, parts: int) -> dict[str, StoredExperts]:
        stored = StoredExperts(f"mlp.experts.{name}", part=part, parts=parts, alternating=True)
        quantized = replace(stored, name=f"mlp.experts.{name}.weight")
        return {"": replace(stored, transposed=True, otherwise=quantized),
                "_bias": replace(stored, name=f"mlp.experts.{name}_bias")}

    parts = {"gate": part("gate_up_proj", 0, 2), "up": part("gate_up_proj", 1, 2), "down": part("down_proj", 0, 1)}
    experts = {f"{role}_experts{kind}": stored for role, kinds in parts.items() for kind, stored in kinds.items()}
    return names.hf_table(spec, {"router": "mlp.router.weight", **experts})


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file; its rows are in the order of a checkpoint."""
    return names.gguf_table(spec, {"ffn_norm": "post_attention_norm.weight"})
