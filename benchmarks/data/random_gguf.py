"""GGUF files of random weights in the shapes of known models, written block by block. The speed of a model does not
depend on the values of its weights.

    python -m benchmarks.data.random_gguf SHAPE FILE.gguf [ENCODING]

The tokenizer is a placeholder. Norms are ones, matrices have random codes and one scale, or random fp16 and bf16
values. ENCODING (a GGML type name) replaces the encoding of all matrices.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

STEP = 1 << 18  # blocks written at a time
F32 = GGMLQuantizationType.F32
DEVIATION = 0.02  # of all weights, approximately
# Position (byte) of a block's fp16 scales, and the scale that gives that deviation if all other bytes are random.
SCALES = {"Q4_0": {0: DEVIATION / 4.6}, "Q8_0": {0: DEVIATION / 74}, "Q6_K": {208: DEVIATION / 1370},
          "Q4_K": {0: DEVIATION / 258, 2: 7.5 * DEVIATION / 258}}


@dataclass(frozen=True)
class Shape:
    """The shape of a model. `experts` 0: dense; `matrices`, `expert_matrices`: GGML types; `tied`: the head is the
    embedding."""

    arch: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    experts: int = 0
    top_k: int = 0
    matrices: str = "Q4_0"
    expert_matrices: str = "Q4_0"
    rope_base: float = 1e6
    window: int = 0
    tied: bool = False

    @property
    def oss(self) -> bool:
        return self.arch == "gpt-oss"


# The shapes have fewer layers than the models, so that they fit into 24 GB of memory; a layer has the original size.
SHAPES = {
    "llama-1b": Shape(arch="llama", hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, ffn=8192, vocab=128256,
                      matrices="F16", rope_base=5e5, tied=True),
    "llama-8b": Shape(arch="llama", hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256,
                      rope_base=5e5),
    "qwen3-30b-a3b": Shape(arch="qwen3moe", hidden=2048, layers=8, heads=32, kv_heads=4, head_dim=128, ffn=768,
                           vocab=151936, experts=128, top_k=8),
    "gpt-oss-20b": Shape(arch="gpt-oss", hidden=2880, layers=6, heads=64, kv_heads=8, head_dim=64, ffn=2880,
                         vocab=201088, experts=32, top_k=4, matrices="Q8_0", expert_matrices="MXFP4",
                         rope_base=150000.0, window=128),
}


def tensors(s: Shape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yields name, shape (outermost first) and type of each tensor."""
    yield "token_embd.weight", (s.vocab, s.hidden), s.matrices
    for layer in range(s.layers):
        b = f"blk.{layer}."
        yield b + "attn_norm.weight", (s.hidden,), "F32"
        for name, n in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
            yield f"{b}attn_{name}.weight", (n * s.head_dim, s.hidden), s.matrices
            if s.oss:
                yield f"{b}attn_{name}.bias", (n * s.head_dim,), "F32"
        yield b + "attn_output.weight", (s.hidden, s.heads * s.head_dim), s.matrices
        if s.arch == "qwen3moe":
            yield b + "attn_q_norm.weight", (s.head_dim,), "F32"
            yield b + "attn_k_norm.weight", (s.head_dim,), "F32"
        if s.oss:
            yield b + "attn_output.bias", (s.hidden,), "F32"
            yield b + "attn_sinks.weight", (s.heads,), "F32"
        yield b + ("post_attention_norm.weight" if s.oss else "ffn_norm.weight"), (s.hidden,), "F32"
        yield from feed_forward(s, b)
    yield "output_norm.weight", (s.hidden,), "F32"
    if not s.tied:
        yield "output.weight", (s.vocab, s.hidden), s.matrices


def feed_forward(s: Shape, block: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    if not s.experts:
        yield block + "ffn_gate.weight", (s.ffn, s.hidden), s.matrices
        yield block + "ffn_up.weight", (s.ffn, s.hidden), s.matrices
        yield block + "ffn_down.weight", (s.hidden, s.ffn), s.matrices
        return
    yield block + "ffn_gate_inp.weight", (s.experts, s.hidden), "F32"
    if s.oss:
        yield block + "ffn_gate_inp.bias", (s.experts,), "F32"
    for name, n, k in (("gate", s.ffn, s.hidden), ("up", s.ffn, s.hidden), ("down", s.hidden, s.ffn)):
        yield f"{block}ffn_{name}_exps.weight", (s.experts, n, k), s.expert_matrices
        if s.oss:
            yield f"{block}ffn_{name}_exps.bias", (s.experts, n), "F32"


def blocks(rng: np.random.Generator, kind: GGMLQuantizationType, count: int) -> NDArray[np.uint8]:
    """Returns (count, block bytes) with weights of a deviation of about DEVIATION."""
    nbytes = GGML_QUANT_SIZES[kind][1]
    if kind in (GGMLQuantizationType.F16, GGMLQuantizationType.BF16):
        drawn = rng.standard_normal(count, np.float32) * np.float32(DEVIATION)
        cut = drawn.astype(np.float16) if kind == GGMLQuantizationType.F16 else drawn.view(np.uint16)[1::2]
        return cut.copy().view(np.uint8).reshape(count, nbytes)
    raw = np.frombuffer(rng.bytes(count * nbytes), np.uint8).reshape(count, nbytes).copy()
    if kind == GGMLQuantizationType.Q4_0:  # no code 0, which stands for -8: with a mean, all rows would be alike
        raw |= np.where(raw & 0x0F, 0, 0x08).astype(np.uint8) | np.where(raw & 0xF0, 0, 0x80).astype(np.uint8)
    if kind == GGMLQuantizationType.MXFP4:
        raw[:, 0] = 121
    else:
        for at, scale in SCALES[kind.name].items():
            raw[:, at : at + 2] = np.array([scale], np.float16).view(np.uint8)
    return raw


def fill(file: BinaryIO, rng: np.random.Generator, kind: GGMLQuantizationType, shape: tuple[int, ...]) -> None:
    """Writes one tensor's bytes."""
    elements = int(np.prod(shape))
    if kind == F32:
        one = np.ones(elements) if len(shape) == 1 else rng.standard_normal(elements) * DEVIATION
        file.write(one.astype("<f4").tobytes())
        return
    left = elements // GGML_QUANT_SIZES[kind][0]
    pool = blocks(rng, kind, min(left, STEP))
    while left:
        file.write(pool[: min(left, STEP)].data)
        left -= min(left, STEP)


def write(shape: Shape, path: Path) -> Path:
    """Writes the file at `path`, complete or not at all."""
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, shape.arch)
    writer.add_block_count(shape.layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(shape.rope_base)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.top_k)
        writer.add_expert_feed_forward_length(shape.ffn)
    if shape.window:
        writer.add_sliding_window(shape.window)
    words = ["a", "b", "ab", *(f"t{i}" for i in range(3, shape.vocab))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.NORMAL] * shape.vocab)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    listed = [(name, dims, GGMLQuantizationType[kind]) for name, dims, kind in tensors(shape)]
    for name, dims, kind in listed:
        block, nbytes = GGML_QUANT_SIZES[kind]
        writer.add_tensor_info(name, dims, np.dtype(np.float32), int(np.prod(dims)) // block * nbytes,
                               raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    (file,) = writer.fout
    writer.write_padding(file, file.tell())
    rng = np.random.default_rng(1)
    for _, dims, kind in listed:
        fill(file, rng, kind, dims)
        writer.write_padding(file, file.tell())
    writer.close()
    os.replace(partial, path)
    return path


if __name__ == "__main__":
    asked = SHAPES[sys.argv[1]]
    write(replace(asked, matrices=sys.argv[3]) if len(sys.argv) > 3 else asked, Path(sys.argv[2]))
