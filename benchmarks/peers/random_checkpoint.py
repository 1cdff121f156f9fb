"""A checkpoint in the Hugging Face layout of about a billion random weights, with another model's tokenizer.

    python -m benchmarks.peers.random_checkpoint TOKENIZER_FOLDER FOLDER [awq]

The shape is that of Llama 3.2 1B, 16 layers of 2048, but for the vocabulary, which is the tokenizer's, and the plain
rotary positions, which every engine reads. Speed does not depend on what the weights are: normal with deviation 0.02,
rounded to bf16, the same from every run. Its answers mean nothing. `awq`: the layers' matrices are random codes in
AWQ's layout, 4 bits in groups of 128 with zero points, all else is fp16.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT = 2048, 16, 32, 8, 64, 8192, 8192
DEVIATION, GROUP = 0.02, 128
Tensor = tuple[str, str, tuple[int, ...]]  # name, type, shape
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
                   "chat_template.jinja")


def config(like: dict[str, object]) -> dict[str, object]:
    """Returns config.json, with the vocabulary and special tokens of the model that provides the tokenizer."""
    taken = {key: like[key] for key in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id") if key in like}
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", **taken}


def shapes(vocab: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields name and shape of each tensor, as (outputs, inputs). The head is the embedding."""
    yield "model.embed_tokens.weight", (vocab, HIDDEN)
    for layer in range(LAYERS):
        block = f"model.layers.{layer}."
        yield f"{block}input_layernorm.weight", (HIDDEN,)
        yield f"{block}self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield f"{block}self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"{block}self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"{block}self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield f"{block}post_attention_layernorm.weight", (HIDDEN,)
        yield f"{block}mlp.gate_proj.weight", (FFN, HIDDEN)
        yield f"{block}mlp.up_proj.weight", (FFN, HIDDEN)
        yield f"{block}mlp.down_proj.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)


def awq(found: Iterable[tuple[str, tuple[int, ...]]]) -> Iterator[Tensor]:
    """Yields the tensors in AWQ's layout, which has the inputs outermost and eight codes in an int32."""
    for name, shape in found:
        if len(shape) == 1 or ".layers." not in name:
            yield name, "F16", shape
            continue
        n, k = shape
        part = name.removesuffix("weight")
        yield f"{part}qweight", "I32", (k, n // 8)
        yield f"{part}qzeros", "I32", (k // GROUP, n // 8)
        yield f"{part}scales", "F16", (k // GROUP, n)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "BF16") -> NDArray[Any]:
    """Returns values. I32: random bits. Otherwise ones for a norm, or random values: bf16, to nearest, ties to even, as
    uint16; or fp16."""
    if dtype == "I32":
        return rng.integers(-(1 << 31), 1 << 31, shape).astype(np.int32)
    drawn = np.ones(shape, np.float32) if len(shape) == 1 else rng.standard_normal(shape, np.float32)
    if len(shape) > 1:
        drawn *= np.float32(DEVIATION)
    if dtype == "F16":
        return drawn.astype(np.float16)
    bits = drawn.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def scales(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float16]:
    """Returns scales of AWQ's groups for which weights with random codes and zero points have about that deviation."""
    return np.full(shape, DEVIATION / 6.5, np.float16) * (1 + rng.random(shape, np.float32) / 8).astype(np.float16)


def write(folder: Path, like: Path, *, as_awq: bool = False) -> Path:
    """Writes the checkpoint to `folder`, complete or not at all, with the tokenizer of the folder `like`."""
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    cfg = config(json.loads((like / "config.json").read_text()))
    plain = list(shapes(int(str(cfg["vocab_size"]))))
    found: list[Tensor] = list(awq(plain)) if as_awq else [(name, "BF16", shape) for name, shape in plain]
    if as_awq:
        cfg |= {"torch_dtype": "float16", "quantization_config": {
            "quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}}
    (partial / "config.json").write_text(json.dumps(cfg, indent=1))
    for name in TOKENIZER_FILES:
        if (like / name).exists():
            shutil.copy(like / name, partial / name)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dtype, shape in found:
        size = (4 if dtype == "I32" else 2) * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    with (partial / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, dtype, shape in found:
            file.write((scales(rng, shape) if name.endswith(".scales") else values(rng, shape, dtype)).tobytes())
    os.replace(partial, folder)
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[2]), Path(sys.argv[1]), as_awq=sys.argv[3:] == ["awq"])
