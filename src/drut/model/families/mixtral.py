"""Mixtral: Mistral's attention and experts in every layer. The architecture of its GGUF files is `llama`."""

from __future__ import annotations

from drut.kernels.ops import Routing
from drut.model.families import hf, hf_rope, llama, names
from drut.model.families.experts import COUNTS, hf_count, hf_names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.moe import MoeFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.metadata import require

NAME, EXAMPLES = llama.MIXTRAL, "Mixtral"
HF_ARCHITECTURES: tuple[str, ...] = ("MixtralForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ()
KNOWN = ("sliding_window", "layer_types", *COUNTS)
DEFAULTS: Metadata = {"num_key_value_heads": 8}
from_gguf, gguf_table = llama.from_gguf, llama.gguf_table


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, KNOWN, DEFAULTS)
    hf.activation(config, NAME, path)
    rope, scale = hf_rope.rope(config, s, NAME, path, theta=1e6), hf.inverse_root(s.head_dim)
    ffn = MoeFfn(s.ffn, Routing(hf_count(config, path), require(config, "num_experts_per_tok", int, path)))
    mixer = AttentionMixer(s.heads, s.kv_heads, s.head_dim, rope, scale, window=hf.window(config, s, NAME, path))
    return hf.spec(s, NAME, [LayerSpec(mixer, ffn)] * s.layers, hf.rms_eps(config, path, 1e-5), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec, hf_names("block_sparse_moe", each=("w1", "w3", "w2")))
