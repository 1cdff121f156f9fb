"""Llama 2 and 3, SmolLM2, and Mistral without a sliding window; GGUF files of Mixtral are of this architecture too."""

from __future__ import annotations

from drut.errors import UnsupportedError
from drut.model.families import common
from drut.model.families.common import Metadata
from drut.model.families.experts import gguf_ffn, with_experts
from drut.model.families.table import Stored
from drut.model.roles import layer_role
from drut.model.spec import ModelSpec
from drut.model.weights.metadata import optional
from drut.model.weights.source import TensorSource

NAME, MIXTRAL = "llama", "mixtral"
HF_ARCHITECTURES: tuple[str, ...] = ("LlamaForCausalLM", "MistralForCausalLM")
GGUF_ARCHITECTURES: tuple[str, ...] = ("llama",)


def from_hf(config: Metadata, path: str, family: str = NAME) -> ModelSpec:
    """The spec of a `config.json`. Errors name the key."""
    common.refuse_flags(config, ("attention_bias", "mlp_bias"), family, path)
    spec = common.hf_spec(config, family, path)
    window = optional(config, "sliding_window", int, path)
    if window is not None and window < spec.context:
        raise UnsupportedError(f"{path}: sliding_window {window} is not supported by family {family}")
    return spec


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """The spec of a GGUF file of architecture `llama`. Errors name the key."""
    experts = optional(metadata, "llama.expert_count", int, path, 0)
    spec = common.gguf_spec(metadata, source, MIXTRAL if experts else NAME, path, experts=True)
    if not experts:
        return spec
    return with_experts(spec, gguf_ffn(metadata, source, path, normalize=True), lambda i: True, path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint."""
    return common.hf_table(spec)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a GGUF file; its q and k rows are interleaved pair by pair."""
    table = common.gguf_table(spec)
    for i, layer in enumerate(spec.layers):
        for role, heads in (("q", layer.mixer.heads), ("k", layer.mixer.kv_heads)):
            name = layer_role(i, role)
            table[name] = Stored(table[name].name, interleaved_heads=heads)
    return table
