"""Granite 3 and 4 without experts or recurrent layers: Llama with multipliers on embedding, attention, residuals and
logits."""

from __future__ import annotations

from drut.errors import ModelFileError
from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.metadata import optional
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "granite", "Granite 3 (dense)"
HF_ARCHITECTURES: tuple[str, ...] = ("GraniteForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("granite",)

KNOWN = ("attention_bias", "mlp_bias", "attention_multiplier", "residual_multiplier", "embedding_multiplier",
         "logits_scaling")


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, KNOWN)
    attention, residual, embed, logits = (
        optional(config, key, float, path, 1.0)
        for key in ("attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling"))
    bias, ffn_bias = (optional(config, key, bool, path, False) for key in ("attention_bias", "mlp_bias"))
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim,
                           rope=hf_rope.rope(config, s, NAME, path), softmax_scale=attention, qkv_bias=bias,
                           o_bias=bias)
    ffn = GatedFfn(s.ffn, hf.activation(config, NAME, path), ffn_bias)
    return _spec(s, LayerSpec(mixer, ffn, residual_scale=residual), hf.rms_eps(config, path), embed, logits, path)


def _spec(s: hf.Sizes, layer: LayerSpec, eps: float, embed: float, logits: float, path: str) -> ModelSpec:
    if not logits:
        raise ModelFileError(f"{path}: the logits are divided by 0")
    return hf.spec(s, NAME, [layer] * s.layers, eps, path, embed_scale=embed, logit_scale=1.0 / logits)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME, known=("attention.scale", "residual_scale", "embedding_scale", "logit_scale"))
    if not keys.get("rope.scaling.finetuned", bool, True):
        raise keys.fail("rope.scaling.finetuned", False, NAME)
    gguf.refuse_window(keys, s, NAME)
    attention = keys.get("attention.scale", float, 0.0) or hf.inverse_root(s.head_dim)
    residual, embed, logits = (keys.get(key, float, 0.0) or 1.0
                               for key in ("residual_scale", "embedding_scale", "logit_scale"))
    bias, o_bias = (f"blk.0.{part}.bias" in source.tensors for part in ("attn_q", "attn_output"))
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=gguf.rope(keys, s, source),
                           softmax_scale=attention, qkv_bias=bias, o_bias=o_bias)
    layer = LayerSpec(mixer, GatedFfn(s.ffn, bias="blk.0.ffn_up.bias" in source.tensors), residual_scale=residual)
    return _spec(s, layer, gguf.rms_eps(keys), embed, logits, path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file, in which rope pairs are adjacent rows of q and k."""
    return names.gguf_table(spec, pairs=True)
