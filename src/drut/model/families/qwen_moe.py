"""Qwen2-MoE (with a shared expert, weighed by a sigmoid) and Qwen3-MoE."""

from __future__ import annotations

from drut.errors import ModelFileError, UnsupportedError
from drut.kernels.ops import Routing
from drut.model.families import gguf, hf, names, qwen
from drut.model.families.experts import COUNTS, gguf_ffn, gguf_sparse, hf_count, hf_names, with_experts
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.moe import MoeFfn
from drut.model.spec import ModelSpec
from drut.model.weights.metadata import optional, require, require_list
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "qwen_moe", "Qwen1.5-MoE, Qwen2-MoE, Qwen3-MoE"
HF_ARCHITECTURES: tuple[str, ...] = ("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM")
GGUF_ARCHITECTURES: tuple[str, ...] = ("qwen2moe", "qwen3moe")

DEFAULTS_2: Metadata = {**qwen.DEFAULTS, "num_key_value_heads": 16}
DEFAULTS_3: Metadata = {**qwen.DEFAULTS, "num_key_value_heads": 4}


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    is_3 = require_list(config, "architectures", str, path)[0].startswith("Qwen3")
    if not is_3 and not optional(config, "qkv_bias", bool, path, True):
        raise UnsupportedError(f"{path}: qkv_bias false is not supported by family {NAME}")
    counts = COUNTS if is_3 else ("num_experts",)
    spec = qwen.dense(config, path, NAME, is_3=is_3, known=(*qwen.KNOWN, "qkv_bias", *counts),
                      defaults=DEFAULTS_3 if is_3 else DEFAULTS_2, windows=_windows_3 if is_3 else _windows_2)
    routing = Routing(hf_count(config, path, counts), require(config, "num_experts_per_tok", int, path),
                      normalize=optional(config, "norm_topk_prob", bool, path, False))
    shared = 0 if is_3 else require(config, "shared_expert_intermediate_size", int, path)
    ffn = MoeFfn(require(config, "moe_intermediate_size", int, path), routing, shared, shared_gate=not is_3)
    step = optional(config, "decoder_sparse_step", int, path, 1)
    if step < 1:
        raise ModelFileError(f"{path}: decoder_sparse_step is {step}")
    dense = require_list(config, "mlp_only_layers", int, path) if config.get("mlp_only_layers") else []
    return with_experts(spec, ffn, lambda i: i not in dense and (i + 1) % step == 0, path)


def _windows_2(config: Metadata, s: hf.Sizes, path: str) -> list[int]:
    """Returns the window of each layer: by `layer_types`, or else for every other layer of the first
    `max_window_layers`."""
    last = optional(config, "max_window_layers", int, path, 0)
    used = optional(config, "use_sliding_window", bool, path, False)
    config = qwen.used_window(config, path)
    return hf.layer_windows(config, s, NAME, path, lambda layer: used and layer % 2 == 0 and layer < last)[1]


def _windows_3(config: Metadata, s: hf.Sizes, path: str) -> list[int]:
    return [hf.window(qwen.used_window(config, path), s, NAME, path)] * s.layers


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    is_3 = keys.architecture == "qwen3moe"
    ffn = gguf_ffn(keys, source, normalize=is_3, shared_gate=not is_3)
    return with_experts(qwen.from_gguf(metadata, source, path, NAME), ffn, gguf_sparse(source), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec, hf_names("mlp"))


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file; its rows are in the order of a checkpoint."""
    return names.gguf_table(spec)
