"""Settings of a `config.json` that change what is computed.

A family reads the settings that it knows. A model with any other setting that is not at its neutral value is refused
by name, because ignoring the setting would change the output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from drut.errors import UnsupportedError
from drut.model.weights.mapping import quote

# Setting -> the value at which it does nothing. Null, and a setting left out, do nothing either.
AT_REST: Mapping[str, object] = {
    "attention_bias": False, "mlp_bias": False, "use_bias": False, "qkv_bias": False, "add_bias": False,
    "use_qk_norm": False, "qk_norm": False, "qk_layernorm": False, "clip_qkv": None, "attention_sink": False,
    "use_bidirectional_attention": False, "use_parallel_residual": False, "parallel_attn": False, "alibi": False,
    "sliding_window": None, "use_sliding_window": False, "layer_types": None, "no_rope_layers": None,
    "attention_chunk_size": None, "attn_temperature_tuning": False, "query_pre_attn_scalar": None,
    "attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_multiplier": None,
    "residual_multiplier": 1, "embedding_multiplier": 1, "logits_scaling": 1, "logit_scale": 1,
    "scale_embedding": False, "scale_emb": 1, "scale_depth": 1, "dim_model_base": None,
    "normalize_embedding": False, "embed_scale": 1,
    "rotary_pct": 1, "rope_interleaved": False, "is_causal": True,
    "num_local_experts": 0, "num_experts": 0, "n_routed_experts": 0, "kv_lora_rank": None, "q_lora_rank": None,
    "index_topk": None, "ssm_cfg": None, "mamba_d_state": None, "linear_num_value_heads": None, "conv_L_cache": None,
    "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "altup_num_inputs": None, "lora": None,
    "per_layer_config": None, "layer_norm_type": None, "norm_after": None, "bias": False,
}


def refuse_others(config: Mapping[str, object], known: Collection[str], family: str, path: str) -> None:
    """Raises UnsupportedError for the first setting of AT_REST outside `known` that is not at its neutral value."""
    for key, rest in AT_REST.items():
        value = config.get(key)
        if key not in known and value is not None and value != rest and not _all_full(key, value):
            raise UnsupportedError(f"{path}: {key} {quote(str(value))} is not supported by family {family}")


def _all_full(key: str, value: object) -> bool:
    """Whether `value` is a list of layer types that are all `full_attention`."""
    return key == "layer_types" and isinstance(value, list) and all(kind == "full_attention" for kind in value)
