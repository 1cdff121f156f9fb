"""A GGUF file of a Llama of about 1.2 billion random weights: the shape of the small models people run on CPUs.

    python -m benchmarks.compare.random_llama FILE.gguf

Speed does not depend on what the weights are. They are stored as fp16, normal with deviation 0.02, the same for every
run; llama.cpp's quantizer makes the other files of it. The tokenizer is a stand-in of words nobody asks for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, CONTEXT = 2048, 16, 32, 8, 64, 8192, 128256, 4096
DEVIATION = 0.02


def tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of each, as (outputs, inputs). The head is the embedding."""
    yield "token_embd.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        yield f"{block}attn_norm.weight", (HIDDEN,)
        yield f"{block}attn_q.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield f"{block}attn_k.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"{block}attn_v.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"{block}attn_output.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield f"{block}ffn_norm.weight", (HIDDEN,)
        yield f"{block}ffn_gate.weight", (FFN, HIDDEN)
        yield f"{block}ffn_up.weight", (FFN, HIDDEN)
        yield f"{block}ffn_down.weight", (HIDDEN, FFN)
    yield "output_norm.weight", (HIDDEN,)


def weights(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32] | NDArray[np.float16]:
    """Ones for a norm, else random fp16."""
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    return (rng.standard_normal(shape, np.float32) * np.float32(DEVIATION)).astype(np.float16)


def tokens() -> tuple[list[str], list[str]]:
    """A vocabulary of words, and one merge, since loaders expect some."""
    return ["a", "b", "ab", *(f"t{i}" for i in range(3, VOCAB))], ["a b"]


def write(path: Path) -> Path:
    """The file at `path`, whole or not at all. Takes 2.5 GB of disk, and about a minute, and as much memory."""
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    words, merges = tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    rng = np.random.default_rng(1)
    for name, shape in tensors():
        writer.add_tensor(name, weights(rng, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, path)
    return path


if __name__ == "__main__":
    write(Path(sys.argv[1]))
