"""Writes a model spec as the keys of a GGUF file and as a `config.json`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from drut.errors import UnsupportedError
from drut.model import rope as ropes
from drut.model.families import hf_rope
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.model import ModelFiles
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional

# GGUF architecture: Hugging Face architecture and model_type.
ARCHITECTURES: dict[str, tuple[str, str]] = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}
SAME = {"MistralForCausalLM": "llama"}
# Llama 3.1 to 3.3's scaling of frequencies; GGUF files have only the result, so the other two settings are recovered.
LOW, HIGH, ORIGINALS = 1.0, 4.0, tuple(1 << i for i in range(5, 21))


def gguf_architecture(files: ModelFiles) -> str:
    """Returns the GGUF architecture; raises UnsupportedError, which names the architecture, if there is none."""
    architecture = files.spec.architecture
    if files.is_gguf and architecture in ARCHITECTURES:
        return architecture
    found = SAME.get(architecture) or next((g for g, (hf, _) in ARCHITECTURES.items() if hf == architecture), None)
    if found is None:
        raise UnsupportedError(f"{files.path.name}: architecture {architecture!r} cannot be converted "
                               f"(can be: {', '.join(ARCHITECTURES)})")
    return found


def gguf_keys(files: ModelFiles, architecture: str) -> tuple[dict[str, object], np.ndarray | None]:
    """Returns the keys without the tokenizer's, and the factors of `rope_freqs.weight` if frequencies are scaled."""
    spec = files.spec
    mixer, rope = _plain(spec, files.path.name)
    theta = _theta(files)
    own: dict[str, object] = {
        "block_count": len(spec.layers), "context_length": spec.context, "embedding_length": spec.hidden,
        "feed_forward_length": spec.layers[0].ffn.width, "attention.head_count": mixer.heads,
        "attention.head_count_kv": mixer.kv_heads, "attention.key_length": mixer.head_dim,
        "attention.value_length": mixer.head_dim, "attention.layer_norm_rms_epsilon": spec.norm_eps,
        "rope.freq_base": theta, "rope.dimension_count": rope.width, "vocab_size": spec.vocab,
    }
    keys: dict[str, object] = {"general.architecture": architecture, "general.name": files.path.name}
    factors = np.array(ropes.frequencies(theta, rope.width)) / np.array(rope.inv_freq)
    scaled = not np.allclose(factors, 1, rtol=1e-12, atol=0)
    return keys | {f"{architecture}.{key}": value for key, value in own.items()}, factors if scaled else None


def hf_config(files: ModelFiles, dtype: str) -> dict[str, Any]:
    """Returns the contents of `config.json`; raises UnsupportedError for a scaling of frequencies that it cannot
    express."""
    spec = files.spec
    mixer, rope = _plain(spec, files.path.name)
    name, model_type = ARCHITECTURES[gguf_architecture(files)]
    config: dict[str, Any] = {
        "architectures": [name], "model_type": model_type, "hidden_act": "silu", "hidden_size": spec.hidden,
        "intermediate_size": spec.layers[0].ffn.width, "num_hidden_layers": len(spec.layers),
        "num_attention_heads": mixer.heads, "num_key_value_heads": mixer.kv_heads, "head_dim": mixer.head_dim,
        "rms_norm_eps": float(np.float32(spec.norm_eps)), "max_position_embeddings": spec.context,
        "vocab_size": spec.vocab, "tie_word_embeddings": spec.tied_head, "rope_theta": _theta(files),
        "torch_dtype": dtype, "use_sliding_window": False,
    }
    scaling = _scaling(files, rope)
    return config | ({"rope_scaling": scaling} if scaling else {})


def _scaling(files: ModelFiles, rope: Rope) -> dict[str, Any] | None:
    theta, stored = _theta(files), np.array(rope.inv_freq)
    base = ropes.frequencies(theta, rope.width)
    if np.allclose(stored, base, rtol=1e-12, atol=0):
        return None
    ratio = base[0] / stored[0]
    if np.allclose(np.array(base) / stored, ratio, rtol=1e-9, atol=0):
        return {"rope_type": "linear", "factor": float(ratio)}
    factor = float(np.float32(base[-1] / stored[-1]))  # factor of the lowest frequency
    for original in ORIGINALS:
        made = ropes.llama3(base, factor, LOW, HIGH, original)
        if np.allclose(stored, made, rtol=1e-6, atol=0):  # factors are float32 in the file
            return {"rope_type": "llama3", "factor": factor, "low_freq_factor": LOW, "high_freq_factor": HIGH,
                    "original_max_position_embeddings": original}
    raise UnsupportedError(f"{files.path.name}: its factors of rope frequencies cannot be written to config.json")


def _theta(files: ModelFiles) -> float:
    """Returns the base of the rope frequencies, before any scaling."""
    where = files.path.name
    if files.is_gguf:
        return optional(files.metadata, f"{files.spec.architecture}.rope.freq_base", float, where, 10000.0)
    return optional(hf_rope.table(files.metadata, where), "rope_theta", float, where, 10000.0)


def _plain(spec: ModelSpec, where: str) -> tuple[AttentionMixer, Rope]:
    """Returns mixer and rope of all layers, if the keys above can express the spec; else raises UnsupportedError."""
    mixer, ffn = spec.layers[0].mixer, spec.layers[0].ffn
    rope = mixer.rope if isinstance(mixer, AttentionMixer) else None
    if isinstance(mixer, AttentionMixer) and rope is not None:
        plain = AttentionMixer(heads=mixer.heads, kv_heads=mixer.kv_heads, head_dim=mixer.head_dim,
                               rope=Rope(rope.inv_freq), softmax_scale=1.0 / math.sqrt(mixer.head_dim),
                               qkv_bias=mixer.qkv_bias, qk_norm=mixer.qk_norm)
        wanted = replace(spec, layers=(LayerSpec(mixer, GatedFfn(ffn.width)),) * len(spec.layers), norm="rms",
                         norm_bias=False, embed_scale=1.0, logit_scale=1.0, logit_softcap=0.0)
        if mixer == plain and spec == wanted:
            return mixer, rope
    raise UnsupportedError(f"{where}: only plain {', '.join(ARCHITECTURES)} can be converted")
