"""Tiny random checkpoints in the Hugging Face layout, the same bits from every run, written without torch.

A checkpoint is a committed `configs/NAME.json` and weights that a seed gives, so no weights are committed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.golden import experts

F32 = NDArray[np.float32]
HERE = Path(__file__).parent
NAMES = tuple(sorted(p.stem for p in (HERE / "configs").glob("*.json")))

# Gains over 1/sqrt(fan in). Those of query and key spread attention scores by about 2, so that attention is
# far from uniform; that of the head spreads logits by about 3, so that greedy choices are clear, as are those of
# routers.
GAIN = {"q_proj": 1.5, "k_proj": 1.5, "qkv_proj": 1.5, "q_norm": 1.5, "k_norm": 1.5, "lm_head": 3.0,
        "gate": 2.0, "router": 2.0}


def config(name: str) -> dict[str, Any]:
    """The checkpoint's config.json."""
    loaded: dict[str, Any] = json.loads((HERE / "configs" / f"{name}.json").read_text())
    return loaded


def raw_stream(name: str, purpose: str) -> np.random.PCG64:
    """A bit generator of its own for each (checkpoint, purpose)."""
    digest = hashlib.sha256(f"{name}/{purpose}".encode()).digest()
    return np.random.PCG64(int.from_bytes(digest[:8], "little"))


def token_ids(name: str, purpose: str, count: int) -> list[int]:
    """`count` random token ids below the checkpoint's vocabulary size."""
    raw = raw_stream(name, purpose).random_raw(count)
    return [int(r >> np.uint64(11)) % config(name)["vocab_size"] for r in raw]


def shapes(cfg: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes (outermost first) of a checkpoint's tensors."""
    hidden, vocab, kind = cfg["hidden_size"], cfg["vocab_size"], cfg["model_type"]
    norm_bias = kind == "starcoder2"
    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(cfg["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        first, second, *more = NORMS.get(kind, ("input_layernorm", "post_attention_layernorm"))
        yield from _norm(layer + first, hidden, norm_bias)
        for name, shape in _attention(cfg):
            yield f"{layer}self_attn.{name}", shape
        for name in (second, *more):
            if name:
                yield from _norm(layer + name, hidden, norm_bias)
        for name, shape in experts.shapes(cfg) if experts.sparse(cfg, i) else _mlp(cfg):
            yield layer + name, shape
    yield from _norm("model.norm", hidden, norm_bias)
    if not cfg["tie_word_embeddings"]:
        yield "lm_head.weight", (vocab, hidden)


# A layer's norms other than Llama's two.
NORMS = {
    "gemma2": ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
               "post_feedforward_layernorm"),
    "olmo2": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "glm4": ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"),
    "cohere2": ("input_layernorm", ""),
}
NORMS |= {"gemma3_text": NORMS["gemma2"], "olmo3": NORMS["olmo2"]}
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _norm(name: str, width: int, bias: bool) -> Shapes:
    yield f"{name}.weight", (width,)
    if bias:
        yield f"{name}.bias", (width,)


def _attention(cfg: dict[str, Any]) -> Shapes:
    hidden, kind = cfg["hidden_size"], cfg["model_type"]
    head = cfg.get("head_dim") or hidden // cfg["num_attention_heads"]
    q, kv = cfg["num_attention_heads"] * head, cfg["num_key_value_heads"] * head
    if kind == "phi3":
        yield "qkv_proj.weight", (q + 2 * kv, hidden)
        yield "o_proj.weight", (hidden, q)
        return
    yield "q_proj.weight", (q, hidden)
    yield "k_proj.weight", (kv, hidden)
    yield "v_proj.weight", (kv, hidden)
    every = cfg.get("use_bias") or cfg.get("attention_bias")
    if every or kind in ("qwen2", "qwen2_moe"):
        yield "q_proj.bias", (q,)
        yield "k_proj.bias", (kv,)
        yield "v_proj.bias", (kv,)
    if kind in ("qwen3", "qwen3_moe", "gemma3_text") or cfg.get("use_qk_norm"):
        yield "q_norm.weight", (head,)
        yield "k_norm.weight", (head,)
    if kind in ("olmo2", "olmo3"):
        yield "q_norm.weight", (q,)
        yield "k_norm.weight", (kv,)
    yield "o_proj.weight", (hidden, q)
    if every and kind not in ("glm4", "glm4_moe"):
        yield "o_proj.bias", (hidden,)
    if kind == "gpt_oss":
        yield "sinks", (cfg["num_attention_heads"],)


def _mlp(cfg: dict[str, Any]) -> Shapes:
    hidden, ffn, kind = cfg["hidden_size"], cfg["intermediate_size"], cfg["model_type"]
    if kind in ("phi3", "glm4"):
        parts = {"gate_up_proj": (2 * ffn, hidden), "down_proj": (hidden, ffn)}
    elif kind == "starcoder2":
        parts = {"c_fc": (ffn, hidden), "c_proj": (hidden, ffn)}
    else:
        parts = {"gate_proj": (ffn, hidden), "up_proj": (ffn, hidden), "down_proj": (hidden, ffn)}
    for name, shape in parts.items():
        yield f"mlp.{name}.weight", shape
        if cfg.get("use_bias") or cfg.get("mlp_bias"):
            yield f"mlp.{name}.bias", shape[:1]


def tensors(name: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """The checkpoint's tensors, fp32 but for MXFP4's bytes, the same bits wherever this runs."""
    cfg = config(name)
    for tensor, shape in shapes(cfg):
        # NumPy promises the raw stream of a bit generator for ever, but not what distributions make of
        # it: a uniform from 24 bits is exact in fp32, a normal is not.
        raw = raw_stream(name, tensor).random_raw(math.prod(shape)) >> np.uint64(40)
        if tensor.endswith(("_blocks", "_scales")):  # any codes; 2^-5 and 2^-4
            codes = raw >> np.uint64(16) if tensor.endswith("_blocks") else 122 + (raw >> np.uint64(23))
            yield tensor, codes.astype(np.uint8).reshape(shape)
            continue
        uniform = (raw.astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).reshape(shape)
        part = tensor.split(".")[-2]
        if tensor.endswith(".bias"):
            yield tensor, uniform
            continue
        if tensor.endswith("_bias"):
            yield tensor, uniform * np.float32(0.25)
            continue
        if len(shape) == 1:
            values = np.float32(GAIN.get(part, 1.0)) * (np.float32(1) + uniform * np.float32(0.25))
            yield tensor, values - np.float32(cfg["model_type"].startswith("gemma"))  # which adds 1 to its norms
            continue
        std = GAIN.get(part, 1.0) / math.sqrt(shape[1])
        if part == "embed_tokens":
            std = GAIN["lm_head"] / math.sqrt(shape[1]) if cfg["tie_word_embeddings"] else 1.0
        yield tensor, uniform * np.float32(std * math.sqrt(3))


def write_safetensors(path: Path, items: Iterable[tuple[str, NDArray[Any]]]) -> None:
    """A safetensors file of tensors of fp32 or bytes, all held in memory."""
    held = [(name, np.ascontiguousarray(array)) for name, array in items]
    header, end = {}, 0
    for name, array in held:
        dtype = {"float32": "F32", "uint8": "U8"}[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in held:
            file.write(array.data)


def write_checkpoint(name: str, directory: Path, cfg: dict[str, Any] | None = None) -> Path:
    """config.json, generation_config.json and model.safetensors of checkpoint `name` in `directory`; its config may be
    written otherwise."""
    cfg = config(name) if cfg is None else cfg
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(cfg, indent=1))
    ids = {key: cfg[key] for key in ("bos_token_id", "eos_token_id")}
    (directory / "generation_config.json").write_text(json.dumps(ids, indent=1))
    write_safetensors(directory / "model.safetensors", tensors(name))
    return directory


def digest(name: str) -> str:
    """SHA-256 over names and bytes of the checkpoint's tensors."""
    sha = hashlib.sha256()
    for tensor, array in tensors(name):
        sha.update(tensor.encode() + array.tobytes())
    return sha.hexdigest()
