"""Reads sizes, windows and rope from the keys of a GGUF file. Sources: the GGUF specification, and llama.cpp's
defaults for omitted keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import numpy as np

from drut.errors import ModelFileError, UnsupportedError
from drut.model import rope as ropes
from drut.model.families.hf import Sizes
from drut.model.spec import Rope
from drut.model.weights.metadata import optional, require, require_list
from drut.model.weights.source import TensorSource

T = TypeVar("T", bound=int | float | str)


class GgufKeys:
    """The keys of a file's architecture, addressed without the architecture's prefix."""

    def __init__(self, metadata: Mapping[str, object], path: str) -> None:
        self.metadata, self.path = metadata, path
        self.architecture = require(metadata, "general.architecture", str, path)

    def need(self, key: str, kind: type[T]) -> T:
        return require(self.metadata, f"{self.architecture}.{key}", kind, self.path)

    def get(self, key: str, kind: type[T], default: T) -> T:
        return optional(self.metadata, f"{self.architecture}.{key}", kind, self.path, default)

    def alike(self, key: str, default: int | None = None) -> int:
        """Returns a size that a file has once, or for each layer; `default` if it has none. Raises UnsupportedError if
        layers differ."""
        name = f"{self.architecture}.{key}"
        if not isinstance(self.metadata.get(name), list):
            return self.need(key, int) if default is None else self.get(key, int, default)
        values, layers = require_list(self.metadata, name, int, self.path), self.need("block_count", int)
        if len(values) != layers or not values:
            raise ModelFileError(f"{self.path}: {name} has {len(values)} entries for {layers} layers")
        if len(set(values)) > 1:
            raise UnsupportedError(f"{self.path}: {name}: layers differ ({min(values)} to {max(values)}), which is not "
                                   "supported")
        return values[0]

    def fail(self, key: str, value: object, family: str) -> UnsupportedError:
        return UnsupportedError(f"{self.path}: {self.architecture}.{key} {value} is not supported by family {family}")


# Key -> its neutral value. An omitted key is neutral, too.
AT_REST: Mapping[str, object] = {
    "attention.causal": True, "attention.clamp_kqv": 0, "attention.max_alibi_bias": 0, "attention.scale": 0,
    "attention.output_scale": 0, "attention.temperature_scale": 0, "attn_logit_softcapping": 0,
    "final_logit_softcapping": 0, "logit_scale": 0, "residual_scale": 0, "embedding_scale": 0,
    "use_parallel_residual": False, "rope.scaling.alpha": 0, "swiglu_clamp_exp": 0,
}


# Key of layers with a window -> key of all layers.
OF_WINDOWS = {"rope.freq_base_swa": "rope.freq_base", "rope.dimension_count_swa": "rope.dimension_count",
              "attention.key_length_swa": "attention.key_length",
              "attention.value_length_swa": "attention.value_length"}


def refuse_others(keys: GgufKeys, family: str, known: Collection[str]) -> None:
    """Raises UnsupportedError for the first key outside `known` that is not at its neutral value."""
    for key, rest in AT_REST.items():
        value = keys.metadata.get(f"{keys.architecture}.{key}")
        if key not in known and value is not None and value != rest:
            raise keys.fail(key, value, family)
    for key, whole in OF_WINDOWS.items():
        value, usual = (keys.metadata.get(f"{keys.architecture}.{name}") for name in (key, whole))
        if key not in known and value is not None and value != usual:
            raise keys.fail(key, value, family)


def sizes(keys: GgufKeys, source: TensorSource, family: str, *, experts: bool = False,
          known: Collection[str] = ()) -> Sizes:
    """Returns the sizes of a file whose layers have equal sizes and whose family knows the keys `known` of AT_REST. An
    error names the key or the tensor."""
    path = keys.path
    if not experts and keys.get("expert_count", int, 0):
        raise UnsupportedError(f"{path}: {keys.architecture}.expert_count: experts are not supported by family "
                               f"{family}")
    refuse_others(keys, family, known)
    hidden, heads = keys.need("embedding_length", int), keys.alike("attention.head_count")
    if heads < 1:
        raise ModelFileError(f"{path}: {keys.architecture}.attention.head_count is {heads}")
    head_dim = keys.get("attention.key_length", int, hidden // heads)
    if keys.get("attention.value_length", int, head_dim) != head_dim:
        raise UnsupportedError(f"{path}: {keys.architecture}.attention.value_length differs from key_length")
    kv_heads, layers = keys.alike("attention.head_count_kv", heads), keys.need("block_count", int)
    if kv_heads < 1 or head_dim < 1:
        raise ModelFileError(f"{path}: {keys.architecture}.attention.head_count_kv is {kv_heads}, key_length "
                             f"{head_dim}")
    if not 1 <= layers <= 4096:
        raise UnsupportedError(f"{path}: {layers} layers are outside 1..4096")
    embed = source.tensors.get("token_embd.weight")
    if embed is None:
        raise ModelFileError(f"{path}: tensor 'token_embd.weight' is missing")
    tokens = keys.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > embed.shape[0]:
        raise ModelFileError(f"{path}: the vocabulary has {len(tokens)} tokens, tensor 'token_embd.weight' "
                             f"{embed.shape[0]} rows")
    return Sizes(architecture=keys.architecture, layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads,
                 head_dim=head_dim, ffn=keys.alike("feed_forward_length"), vocab=embed.shape[0],
                 context=keys.need("context_length", int), tied="output.weight" not in source.tensors)


def rms_eps(keys: GgufKeys) -> float:
    return keys.need("attention.layer_norm_rms_epsilon", float)


def windows(keys: GgufKeys, sizes: Sizes, windowed: Callable[[int], bool], default: int = 0) -> list[int]:
    """Returns the window of each layer, 0 for none; `default` positions if the file has no key."""
    window = keys.get("attention.sliding_window", int, default)
    width = window if 0 < window < sizes.context else 0
    return [width * windowed(i) for i in range(sizes.layers)]


def windowed(keys: GgufKeys, sizes: Sizes, every: int, default: int = 0) -> list[bool]:
    """Returns for each layer whether it has a window: all but each `every`-th, unless the file has another number or a
    list. No layer has one if the window has 0 positions; `default` is the window if the file has no key."""
    if not keys.get("attention.sliding_window", int, default):
        return [False] * sizes.layers
    name = f"{keys.architecture}.attention.sliding_window_pattern"
    if isinstance(keys.metadata.get(name), list):
        flags = require_list(keys.metadata, name, bool, keys.path)
        if len(flags) != sizes.layers:
            raise ModelFileError(f"{keys.path}: {name} has {len(flags)} entries for {sizes.layers} layers")
        return flags
    every = keys.get("attention.sliding_window_pattern", int, every)
    if every < 0:
        raise ModelFileError(f"{keys.path}: {name} is {every}")
    return [every == 0 or (i + 1) % every != 0 for i in range(sizes.layers)]


def refuse_window(keys: GgufKeys, sizes: Sizes, family: str) -> None:
    window = keys.get("attention.sliding_window", int, 0)
    if 0 < window < sizes.context:
        raise keys.fail("attention.sliding_window", window, family)


def rope(keys: GgufKeys, sizes: Sizes, source: TensorSource, *, theta: float = 10000.0,
         truncate: bool = True) -> Rope:
    """Returns the rope of the keys and of tensors with factors. `theta` is the default base."""
    path = keys.path
    base = ropes.Base(keys.get("rope.freq_base", float, theta), keys.get("rope.dimension_count", int, sizes.head_dim),
                      path)
    f, kind = base.frequencies, keys.get("rope.scaling.type", str, "linear")
    factor = keys.get("rope.scaling.factor", float, keys.get("rope.scale_linear", float, 0.0))
    original = keys.get("rope.scaling.original_context_length", int, sizes.context)
    scale = keys.get("rope.scaling.attn_factor", float, 1.0)
    if factor < 0 or original < 2 or not scale > 0:
        raise ModelFileError(f"{path}: {keys.architecture}.rope.scaling: a value is not positive")
    if {"rope_factors_long.weight", "rope_factors_short.weight"} & source.tensors.keys():
        if kind in ("linear", "yarn") and factor not in (0, 1):
            raise UnsupportedError(f"{path}: {keys.architecture}.rope.scaling.type {kind} with tensors of factors is "
                                   "not supported")
        short, long = (_factors(source, f"rope_factors_{name}.weight", len(f), path) for name in ("short", "long"))
        return ropes.longrope(f, short, long, original, scale)
    rope = Rope(f)
    match kind:
        case "linear" if factor:
            rope = Rope(ropes.linear(f, factor))
        case "yarn" if factor:
            fast = keys.get("rope.scaling.yarn_beta_fast", float, 32.0)
            slow = keys.get("rope.scaling.yarn_beta_slow", float, 1.0)
            if not fast > slow > 0:
                raise ModelFileError(f"{path}: yarn_beta_fast {fast} is not above yarn_beta_slow {slow}")
            under = ropes.yarn_scale(factor, keys.get("rope.scaling.yarn_log_multiplier", float, 0.0))
            rope = Rope(ropes.yarn(base, f, factor, original, fast, slow, truncate),
                        ropes.yarn_scale(factor) / under * scale)
        case "none" | "linear" | "yarn" | "llama3" | "longrope":
            pass
        case _:
            raise ropes.unsupported(kind, path)
    if "rope_freqs.weight" in source.tensors:
        return Rope(ropes.by_factors(rope.inv_freq, _factors(source, "rope_freqs.weight", len(f), path)), rope.scale)
    return rope


def _factors(source: TensorSource, name: str, count: int, path: str) -> list[float]:
    info = source.tensors.get(name)
    if info is None:
        raise ModelFileError(f"{path}: tensor {name!r} is missing")
    if info.encoding != "F32" or info.shape != (count,):
        raise ModelFileError(f"{path}: tensor {name!r} is not {count} F32 values")
    factors = [float(f) for f in source.raw(name).view(np.float32)]
    if not all(0 < f < 1e9 for f in factors):
        raise ModelFileError(f"{path}: tensor {name!r} holds a factor that is not positive")
    return factors

