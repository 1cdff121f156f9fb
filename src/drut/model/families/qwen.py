"""Qwen2 and 2.5 (q, k and v with biases) and Qwen3 (heads of q and k normed), without sliding windows."""

from __future__ import annotations

from drut.errors import UnsupportedError
from drut.model.families import common
from drut.model.families.common import Metadata
from drut.model.families.table import Stored
from drut.model.spec import ModelSpec
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional, require, require_list
from drut.model.weights.source import TensorSource

NAME = "qwen"
HF_ARCHITECTURES: tuple[str, ...] = ("Qwen2ForCausalLM", "Qwen3ForCausalLM")
GGUF_ARCHITECTURES: tuple[str, ...] = ("qwen2", "qwen3")

# What a config means by a key it leaves out.
DEFAULTS: Metadata = {"sliding_window": 4096, "max_window_layers": 28}
DEFAULTS_3: Metadata = {**DEFAULTS, "head_dim": 128}


def from_hf(config: Metadata, path: str, family: str = NAME) -> ModelSpec:
    """The spec of a `config.json`. Errors name the key."""
    is_3 = require_list(config, "architectures", str, path)[0].startswith("Qwen3")
    config = {**(DEFAULTS_3 if is_3 else DEFAULTS), **config}
    if is_3:
        common.refuse_flags(config, ("attention_bias",), family, path)
    spec = common.hf_spec(config, family, path, qkv_bias=not is_3, qk_norm=is_3)
    _refuse_windows(config, spec, path)
    return spec


def _refuse_windows(config: Metadata, spec: ModelSpec, path: str) -> None:
    """`layer_types` says which layers have a window; without it, if windows are used, those past the first
    `max_window_layers` do."""
    if config.get("layer_types") is not None:
        for kind in require_list(config, "layer_types", str, path):
            if kind != "full_attention":
                raise UnsupportedError(f"{path}: layer_types: {quote(kind)} is not supported by family "
                                       f"{NAME} (supported: full_attention)")
        return
    used = optional(config, "use_sliding_window", bool, path, False)
    window = optional(config, "sliding_window", int, path)
    full = optional(config, "max_window_layers", int, path, 0)
    if used and window is not None and window < spec.context and full < len(spec.layers):
        raise UnsupportedError(f"{path}: use_sliding_window with max_window_layers {full} of "
                               f"{len(spec.layers)} is not supported by family {NAME}")


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """The spec of a GGUF file of architecture `qwen2` or `qwen3`. Errors name the key."""
    is_3 = require(metadata, "general.architecture", str, path) == "qwen3"
    return common.gguf_spec(metadata, source, NAME, path, qkv_bias=not is_3, qk_norm=is_3)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint."""
    return common.hf_table(spec)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a GGUF file, its rows in the order of a checkpoint."""
    return common.gguf_table(spec)
