"""Reads sizes, activation and windows from a `config.json`, for all families."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drut.errors import ModelFileError, UnsupportedError
from drut.model.families import settings
from drut.model.spec import LayerSpec, ModelSpec, check
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional, require, require_list

Metadata = Mapping[str, object]

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
               "gelu": "gelu_erf"}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model whose layers have equal sizes."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    tied: bool


def open_config(config: Metadata, family: str, path: str, known: Sequence[str],
                defaults: Metadata = MappingProxyType({})) -> tuple[Metadata, Sizes]:
    """Returns the config with `defaults` for omitted keys, and its sizes. Settings that are not `known` are refused."""
    config = {**defaults, **config}
    settings.refuse_others(config, known, family, path)
    hidden, heads = require(config, "hidden_size", int, path), positive(config, "num_attention_heads", int, path)
    layers = require(config, "num_hidden_layers", int, path)
    if not 1 <= layers <= 4096:
        raise UnsupportedError(f"{path}: {layers} layers are outside 1..4096")
    sizes = Sizes(architecture=require_list(config, "architectures", str, path)[0], layers=layers, hidden=hidden,
                  heads=heads, kv_heads=optional(config, "num_key_value_heads", int, path, heads),
                  head_dim=optional(config, "head_dim", int, path, hidden // heads),
                  ffn=require(config, "intermediate_size", int, path), vocab=require(config, "vocab_size", int, path),
                  context=require(config, "max_position_embeddings", int, path),
                  tied=optional(config, "tie_word_embeddings", bool, path, False))
    for name, value in (("num_key_value_heads", sizes.kv_heads), ("head_dim", sizes.head_dim)):
        if value < 1:
            raise ModelFileError(f"{path}: {name} is {value}")
    return config, sizes


def spec(sizes: Sizes, family: str, layers: Sequence[LayerSpec], eps: float, path: str, **more: Any) -> ModelSpec:
    """Returns the checked spec of these layers. `more`: fields of ModelSpec that are not at their default."""
    return check(ModelSpec(architecture=sizes.architecture, family=family, vocab=sizes.vocab, hidden=sizes.hidden,
                           layers=tuple(layers), norm_eps=eps, context=sizes.context, tied_head=sizes.tied,
                           **more), path)


def rms_eps(config: Metadata, path: str, default: float = 1e-6) -> float:
    return optional(config, "rms_norm_eps", float, path, default)


def activation(config: Metadata, family: str, path: str, key: str = "hidden_act", default: str = "silu",
               supported: Sequence[str] = ("silu",)) -> str:
    """Returns the activation of the feed-forward; raises UnsupportedError if it is not in `supported`."""
    name = optional(config, key, str, path, default)
    if ACTIVATIONS.get(name) not in supported:
        names = ", ".join(known for known, ours in ACTIVATIONS.items() if ours in supported)
        raise UnsupportedError(f"{path}: {key} {quote(name)} is not supported by family {family} (supported: {names})")
    return ACTIVATIONS[name]


def layer_windows(config: Metadata, sizes: Sizes, family: str, path: str,
                  windowed: Callable[[int], bool]) -> tuple[list[str], list[int]]:
    """Returns each layer's kind, by `layer_types` or else by `windowed`, and each layer's window, 0 for none."""
    kinds = _layer_types(config, sizes, family, path) or [
        "sliding_attention" if windowed(i) else "full_attention" for i in range(sizes.layers)]
    if "sliding_attention" not in kinds:
        return kinds, [0] * sizes.layers
    width = _width(config, sizes, path)
    if width is None:
        raise ModelFileError(f"{path}: layers have a window, but sliding_window is missing")
    return kinds, [width * (kind == "sliding_attention") for kind in kinds]


def window(config: Metadata, sizes: Sizes, family: str, path: str) -> int:
    """Returns the window of all layers, 0 for none. Raises UnsupportedError if `layer_types` contradicts it."""
    width = _width(config, sizes, path)
    wanted = "full_attention" if width is None else "sliding_attention"
    if set(_layer_types(config, sizes, family, path) or [wanted]) != {wanted}:
        raise UnsupportedError(f"{path}: layer_types: all layers of family {family} must be {wanted} if sliding_window "
                               f"is {config.get('sliding_window')}")
    return width or 0


def _width(config: Metadata, sizes: Sizes, path: str) -> int | None:
    """Returns the width of the window in positions; 0 if it covers the whole context, None if the file has none."""
    width = optional(config, "sliding_window", int, path)
    if width is not None and width < 1:
        raise ModelFileError(f"{path}: sliding_window is {width}")
    return width if width is None or width < sizes.context else 0


def _layer_types(config: Metadata, sizes: Sizes, family: str, path: str) -> list[str]:
    """Returns `full_attention` or `sliding_attention` for each layer; an empty list if the file has no list."""
    if config.get("layer_types") is None:
        return []
    kinds = require_list(config, "layer_types", str, path)
    if len(kinds) != sizes.layers:
        raise ModelFileError(f"{path}: layer_types has {len(kinds)} entries for {sizes.layers} layers")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise UnsupportedError(f"{path}: layer_types: {quote(kind)} is not supported by family {family} "
                                   "(supported: full_attention, sliding_attention)")
    return kinds


def positive(table: Metadata, key: str, kind: type[Any], path: str) -> Any:
    value = require(table, key, kind, path)
    if not value > 0:
        raise ModelFileError(f"{path}: {key} is {value}, not positive")
    return value


def root(size: int) -> float:
    """Returns the square root of a size that was not checked yet: 0 if it is negative."""
    return math.sqrt(max(size, 0))


def inverse_root(head_dim: float) -> float:
    """Returns 1 / sqrt(head_dim), the usual softmax scale of attention."""
    return 1.0 / math.sqrt(max(head_dim, 1))
