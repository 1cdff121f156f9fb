"""Other ways to write the config of a tiny checkpoint, over the same weights."""

from __future__ import annotations

from typing import Any

from tests.golden.weights import config

GONE = object()  # the value of a key that is left out
YARN = {"rope_type": "yarn", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
MIXED = ["sliding_attention", "full_attention"]


def _old(theta: float = 10000.0, **more: object) -> dict[str, object]:
    """Rope as files before `rope_parameters` describe it."""
    return {"rope_parameters": GONE, "rope_theta": theta, **more}


# Name: (checkpoint, changes to its config.json).
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # A head of its own although the config says tied.
    "llama-own-head": ("llama3_gqa", {"tie_word_embeddings": True}),
    "qwen2-own-head": ("qwen2_untied", {"tie_word_embeddings": True}),
    "mixtral-own-head": ("mixtral_gqa", {"tie_word_embeddings": True}),
    # What rope scaling leaves out.
    "llama-yarn-default-original": ("head_dim_48", _old(rope_scaling={"type": "yarn", "factor": 2.0},
                                                         max_position_embeddings=512)),
    "llama-yarn-original-beside": ("head_dim_48", _old(rope_scaling=YARN, original_max_position_embeddings=64)),
    "llama-yarn-two-originals": ("head_dim_48", _old(
        rope_scaling={**YARN, "original_max_position_embeddings": 32}, original_max_position_embeddings=256)),
    "llama-yarn-betas-0": ("head_dim_48", _old(rope_scaling={
        **YARN, "original_max_position_embeddings": 128, "beta_fast": 0, "beta_slow": 0})),
    "llama-llama3-default-original": ("head_dim_48", _old(rope_scaling=LLAMA3)),
    "llama-scaling-and-parameters": ("head_dim_48", {
        "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
        "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    "phi3-original-in-scaling": ("phi3_within", {
        "original_max_position_embeddings": GONE,
        "rope_scaling": {**config("phi3_within")["rope_scaling"], "original_max_position_embeddings": 512}}),
    "gpt-oss-default-rope": ("gpt_oss", {"rope_parameters": GONE}),
    "ministral3-default-rope": ("ministral3", {"rope_parameters": GONE}),
    "mistral-without-growth": ("mistral_mqa", {"rope_theta": GONE, "rope_parameters": {
        **YARN, "original_max_position_embeddings": 64, "rope_theta": 1e6, "llama_4_scaling_beta": 0.3}}),
    "gemma3-older-keys": ("gemma3", _old(2e4, rope_local_base_freq=500.0,
                                         rope_scaling={"rope_type": "linear", "factor": 8.0})),
    "olmo3-older-keys": ("olmo3", _old(500000.0, rope_scaling={**YARN, "original_max_position_embeddings": 128})),
    # A part of the head turns where transformers says so, and nowhere else.
    "glm4-three-quarters": ("glm4", _old(partial_rotary_factor=0.75)),
    "glm4-moe-three-quarters": ("glm4_moe", _old(partial_rotary_factor=0.75)),
    "phi3-half": ("phi3", {"partial_rotary_factor": 0.5}),
    "llama-half-is-whole": ("llama_tied", {"partial_rotary_factor": 0.5}),
    "qwen2-half-is-whole": ("qwen2_tied", {"partial_rotary_factor": 0.5}),
    "gemma2-half-is-whole": ("gemma2", {"partial_rotary_factor": 0.5}),
    # Windows.
    "mistral-window-16": ("mistral_window", {"sliding_window": 16}),
    "mistral-window-of-a-row": ("mistral_window", {"sliding_window": 1}),
    "mistral-mixed-layers": ("mistral_window", {"sliding_window": 16, "layer_types": MIXED}),
    "qwen2-past-the-first-layer": ("qwen2_window", {"sliding_window": 16, "use_sliding_window": True,
                                                    "max_window_layers": 1, "layer_types": GONE}),
    "gemma3-every-third-layer": ("gemma3", {"sliding_window_pattern": 3, "layer_types": GONE}),
    "cohere2-every-third-layer": ("cohere2", {"sliding_window_pattern": 3, "layer_types": GONE}),
    "qwen2-moe-every-other-layer": ("qwen2_moe", {"sliding_window": 16, "use_sliding_window": True,
                                                  "max_window_layers": 28, "layer_types": GONE}),
    "qwen3-moe-all-layers": ("qwen3_moe", {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1}),
    "smollm3-types-decide": ("smollm3", {"sliding_window": 16, "use_sliding_window": False,
                                         "layer_types": [*MIXED, *MIXED]}),
    "phi3-window-and-types": ("phi3", {"sliding_window": 16, "layer_types": ["sliding_attention"] * 2}),
    # Names.
    "qwen3-moe-newer-name": ("qwen3_moe", {"num_experts": GONE, "num_local_experts": 12}),
    "mixtral-other-name": ("mixtral_gqa", {"num_local_experts": GONE, "num_experts": 6}),
    "no-architectures": ("qwen3_gqa", {"architectures": GONE}),
}


def variant(name: str) -> dict[str, Any]:
    """The config.json of a variant."""
    base, changes = VARIANTS[name]
    return {key: value for key, value in (config(base) | changes).items() if value is not GONE}
