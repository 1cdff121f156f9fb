"""Mixtral: Mistral's attention and experts in every layer. Its GGUF files are of architecture `llama`."""

from __future__ import annotations

from drut.kernels.ops import Routing
from drut.model.families import common, llama
from drut.model.families.common import Metadata
from drut.model.families.experts import hf_names, with_experts
from drut.model.families.table import Stored
from drut.model.spec import ModelSpec, MoeFfn
from drut.model.weights.metadata import require
from drut.model.weights.source import TensorSource

NAME = llama.MIXTRAL
HF_ARCHITECTURES: tuple[str, ...] = ("MixtralForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ()


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """The spec of a `config.json`. Errors name the key."""
    spec = llama.from_hf(config, path, NAME)
    experts, top_k = (require(config, key, int, path) for key in ("num_local_experts", "num_experts_per_tok"))
    ffn = MoeFfn(require(config, "intermediate_size", int, path), Routing(experts, top_k))
    return with_experts(spec, ffn, lambda i: True, path)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """No architecture of GGUF files is this family's own."""
    return llama.from_gguf(metadata, source, path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint."""
    return common.hf_table(spec, hf_names("block_sparse_moe", each=("w1", "w3", "w2")))


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a GGUF file."""
    return llama.gguf_table(spec)
