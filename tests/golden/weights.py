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

F32 = NDArray[np.float32]
HERE = Path(__file__).parent
NAMES = tuple(sorted(p.stem for p in (HERE / "configs").glob("*.json")))

# Gains over 1/sqrt(fan in). Those of query and key spread attention scores by about 2, so that attention is
# far from uniform; that of the head spreads logits by about 3, so that greedy choices are clear.
# That of routers (`gate`) keeps their choices clear.
GAIN = {"q_proj": 1.5, "k_proj": 1.5, "q_norm": 1.5, "k_norm": 1.5, "lm_head": 3.0, "gate": 2.0}


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
    """Names and shapes (outermost first) of a checkpoint's tensors: Llama's, and those Qwen adds to them."""
    hidden, vocab = cfg["hidden_size"], cfg["vocab_size"]
    head = cfg.get("head_dim") or hidden // cfg["num_attention_heads"]
    q, kv = cfg["num_attention_heads"] * head, cfg["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(cfg["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "self_attn.q_proj.weight", (q, hidden)
        yield layer + "self_attn.k_proj.weight", (kv, hidden)
        yield layer + "self_attn.v_proj.weight", (kv, hidden)
        if cfg["model_type"] in ("qwen2", "qwen2_moe"):
            yield layer + "self_attn.q_proj.bias", (q,)
            yield layer + "self_attn.k_proj.bias", (kv,)
            yield layer + "self_attn.v_proj.bias", (kv,)
        if cfg["model_type"] in ("qwen3", "qwen3_moe"):
            yield layer + "self_attn.q_norm.weight", (head,)
            yield layer + "self_attn.k_norm.weight", (head,)
        yield layer + "self_attn.o_proj.weight", (hidden, q)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        yield from feed_forward(cfg, i, layer)
    yield "model.norm.weight", (hidden,)
    if not cfg["tie_word_embeddings"]:
        yield "lm_head.weight", (vocab, hidden)


def feed_forward(cfg: dict[str, Any], index: int, layer: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of layer `index`, whose tensors begin with `layer`: dense or of experts."""
    hidden, ffn = cfg["hidden_size"], cfg["intermediate_size"]
    if cfg["model_type"] == "mixtral":
        yield layer + "block_sparse_moe.gate.weight", (cfg["num_local_experts"], hidden)
        for e in range(cfg["num_local_experts"]):
            yield from gated(f"{layer}block_sparse_moe.experts.{e}.", ffn, hidden, ("w1", "w3", "w2"))
    elif "num_experts" in cfg and index not in cfg["mlp_only_layers"]:
        yield layer + "mlp.gate.weight", (cfg["num_experts"], hidden)
        for e in range(cfg["num_experts"]):
            yield from gated(f"{layer}mlp.experts.{e}.", cfg["moe_intermediate_size"], hidden)
        if "shared_expert_intermediate_size" in cfg:
            yield from gated(f"{layer}mlp.shared_expert.", cfg["shared_expert_intermediate_size"], hidden)
            yield layer + "mlp.shared_expert_gate.weight", (1, hidden)
    else:
        yield from gated(layer + "mlp.", ffn, hidden)


def gated(block: str, width: int, hidden: int,
          names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The three matrices of a gated feed-forward."""
    for name, shape in zip(names, ((width, hidden), (width, hidden), (hidden, width)), strict=True):
        yield f"{block}{name}.weight", shape


def tensors(name: str) -> Iterator[tuple[str, F32]]:
    """The checkpoint's tensors, fp32, the same bits wherever this runs."""
    cfg = config(name)
    for tensor, shape in shapes(cfg):
        # NumPy promises the raw stream of a bit generator for ever, but not what distributions make of
        # it: a uniform from 24 bits is exact in fp32, a normal is not.
        raw = raw_stream(name, tensor).random_raw(math.prod(shape)) >> np.uint64(40)
        uniform = (raw.astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).reshape(shape)
        part = tensor.split(".")[-2]
        if tensor.endswith(".bias"):
            yield tensor, uniform
            continue
        if len(shape) == 1:
            yield tensor, np.float32(GAIN.get(part, 1.0)) * (np.float32(1) + uniform * np.float32(0.25))
            continue
        std = GAIN.get(part, 1.0) / math.sqrt(shape[1])
        if part == "embed_tokens":
            std = GAIN["lm_head"] / math.sqrt(shape[1]) if cfg["tie_word_embeddings"] else 1.0
        yield tensor, uniform * np.float32(std * math.sqrt(3))


def write_safetensors(path: Path, items: Iterable[tuple[str, F32]]) -> None:
    """A safetensors file of fp32 tensors, all held in memory."""
    held = [(name, np.ascontiguousarray(array, np.float32)) for name, array in items]
    header, end = {}, 0
    for name, array in held:
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in held:
            file.write(array.data)


def write_checkpoint(name: str, directory: Path) -> Path:
    """config.json, generation_config.json and model.safetensors of checkpoint `name` in `directory`."""
    cfg = config(name)
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
