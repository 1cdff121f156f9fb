"""Qwen2-MoE (with an expert that all rows share, weighed by a sigmoid) and Qwen3-MoE."""

from __future__ import annotations

from drut.errors import ModelFileError
from drut.kernels.ops import Routing
from drut.model.families import common, qwen
from drut.model.families.common import Metadata
from drut.model.families.experts import gguf_ffn, hf_names, with_experts
from drut.model.families.table import Stored
from drut.model.spec import ModelSpec, MoeFfn
from drut.model.weights.metadata import optional, require, require_list
from drut.model.weights.source import TensorSource

NAME = "qwen_moe"
HF_ARCHITECTURES: tuple[str, ...] = ("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM")
GGUF_ARCHITECTURES: tuple[str, ...] = ("qwen2moe", "qwen3moe")


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """The spec of a `config.json`. Errors name the key."""
    is_3 = require_list(config, "architectures", str, path)[0].startswith("Qwen3")
    spec = qwen.from_hf(config, path, NAME)
    routing = Routing(require(config, "num_experts", int, path), require(config, "num_experts_per_tok", int, path),
                      normalize=optional(config, "norm_topk_prob", bool, path, False))
    shared = 0 if is_3 else require(config, "shared_expert_intermediate_size", int, path)
    ffn = MoeFfn(require(config, "moe_intermediate_size", int, path), routing, shared, shared_gate=not is_3)
    step = optional(config, "decoder_sparse_step", int, path, 1)
    if step < 1:
        raise ModelFileError(f"{path}: decoder_sparse_step is {step}")
    dense = require_list(config, "mlp_only_layers", int, path) if config.get("mlp_only_layers") else []
    return with_experts(spec, ffn, lambda i: i not in dense and (i + 1) % step == 0, path)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """The spec of a GGUF file of architecture `qwen2moe` or `qwen3moe`. Errors name the key."""
    is_3 = require(metadata, "general.architecture", str, path) == "qwen3moe"
    spec = common.gguf_spec(metadata, source, NAME, path, qkv_bias=not is_3, qk_norm=is_3, experts=True)
    ffn = gguf_ffn(metadata, source, path, normalize=is_3, shared_gate=not is_3)
    return with_experts(spec, ffn, lambda i: f"blk.{i}.ffn_gate_inp.weight" in source.tensors, path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint."""
    return common.hf_table(spec, hf_names("mlp"))


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a GGUF file, its rows in the order of a checkpoint."""
    return common.gguf_table(spec)
