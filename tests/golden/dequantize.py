"""A llama-architecture GGUF as an fp32 checkpoint in the Hugging Face layout, by the `gguf` package.

Independent of the code under test: that package decodes; row order and tokenizer are restored here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers

from tests.golden.weights import write_safetensors

LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL = 3  # the token type of special tokens


def field(reader: gguf.GGUFReader, key: str) -> Any:
    return reader.fields[key].contents()


def config(reader: gguf.GGUFReader) -> dict[str, Any]:
    """config.json from the metadata."""
    heads = field(reader, "llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": field(reader, "llama.embedding_length"),
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": field(reader, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field(reader, "llama.attention.head_count_kv"),
        "max_position_embeddings": field(reader, "llama.context_length"),
        "rms_norm_eps": field(reader, "llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": field(reader, "llama.rope.freq_base"),
        "vocab_size": field(reader, "llama.vocab_size"),
        "tie_word_embeddings": all(t.name != "output.weight" for t in reader.tensors),
        "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": field(reader, "tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    }


def tensors(reader: gguf.GGUFReader, cfg: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """(Hugging Face name, fp32 values) of every tensor; query and key rows in half-split rotary order."""
    heads = {"attn_q": cfg["num_attention_heads"], "attn_k": cfg["num_key_value_heads"]}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        stem = tensor.name.removesuffix(".weight")
        if not stem.startswith("blk."):
            yield f"{TOP[stem]}.weight", values
            continue
        _, index, part = stem.split(".")
        if part in heads:  # stored as (head, pair, 2), wanted as (head, 2, pair)
            paired = values.reshape(heads[part], -1, 2, values.shape[1])
            values = paired.swapaxes(1, 2).reshape(values.shape)
        yield f"model.layers.{index}.{LAYER_PARTS[part]}.weight", values


def tokenizer(reader: gguf.GGUFReader) -> tokenizers.Tokenizer:
    """The byte-level BPE of a file whose pre-tokenizer is `smollm`: digits one by one, then GPT-2's split."""
    if (pre := field(reader, "tokenizer.ggml.pre")) != "smollm":
        raise SystemExit(f"tokenizer.ggml.pre is {pre!r}; this rebuilds 'smollm' only")
    tokens = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field(reader, "tokenizer.ggml.merges")]
    built = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    built.decoder = decoders.ByteLevel()
    types = field(reader, "tokenizer.ggml.token_type")
    built.add_special_tokens([t for t, kind in zip(tokens, types, strict=True) if kind == CONTROL])
    return built


def dequantize(path: Path, directory: Path) -> Path:
    """Write config.json, tokenizer.json and fp32 model.safetensors of the GGUF file `path` in `directory`."""
    reader = gguf.GGUFReader(path)
    cfg = config(reader)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(cfg, indent=1))
    tokenizer(reader).save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", tensors(reader, cfg))
    return directory
