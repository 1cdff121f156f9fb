"""Whole, valid models of some 60 kB, as files by name: what mutants are made of."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cache

from tests.cli import tiny
from tests.model.gguf_writer import F32, Tensor, gguf
from tests.model.tokenizer_reference import layout

HIDDEN, FFN, VOCAB, LAYERS = 32, 32, 260, 1
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ eos_token }}"


@dataclass(frozen=True)
class Seed:
    """A model's files. A GGUF's parts are kept, so that mutants of it can be written anew."""

    files: dict[str, bytes]
    metadata: dict[str, object] | None = None
    tensors: tuple[Tensor, ...] = ()

    @property
    def entry(self) -> str:
        """What is opened: the GGUF file, or the directory."""
        return "model.gguf" if self.metadata is not None else ""


@cache
def seeds() -> tuple[Seed, ...]:
    """GGUF files of three families, and directories: one file of weights, two shards."""
    ggufs = [_gguf(arch, pre) for arch, pre in (("llama", "gpt-2"), ("qwen2", "qwen2"), ("qwen3", "llama-bpe"))]
    return (*ggufs, _directory("LlamaForCausalLM", "llama-bpe", shards=1),
            _directory("Qwen2ForCausalLM", "qwen2", shards=2), _directory("Qwen3ForCausalLM", "smollm", shards=1))


def _shapes(family: str) -> dict[str, tuple[int, ...]]:
    """Of one layer, in a checkpoint's names."""
    head = HIDDEN // 2
    layer = {"input_layernorm.weight": (HIDDEN,), "post_attention_layernorm.weight": (HIDDEN,),
             "self_attn.q_proj.weight": (HIDDEN, HIDDEN), "self_attn.k_proj.weight": (head, HIDDEN),
             "self_attn.v_proj.weight": (head, HIDDEN), "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
             "mlp.gate_proj.weight": (FFN, HIDDEN), "mlp.up_proj.weight": (FFN, HIDDEN),
             "mlp.down_proj.weight": (HIDDEN, FFN)}
    if family == "qwen2":
        layer |= {"self_attn.q_proj.bias": (HIDDEN,), "self_attn.k_proj.bias": (head,),
                  "self_attn.v_proj.bias": (head,)}
    if family == "qwen3":
        layer |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    return {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)} | {
        f"model.layers.0.{name}": shape for name, shape in layer.items()}


_GGUF_PARTS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "input_layernorm": "attn_norm",
               "post_attention_layernorm": "ffn_norm", "self_attn.": "attn_", "mlp.": "ffn_", "_proj": "",
               "attn_o.": "attn_output.", "model.layers.0": "blk.0"}


def _gguf(arch: str, pre: str) -> Seed:
    own = tiny.metadata()
    metadata: dict[str, object] = {key: value for key, value in own.items() if not key.startswith("llama.")}
    metadata |= {
        "general.alignment": 32, "general.architecture": arch, "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*own["tokenizer.ggml.tokens"], "ab", "cd"],  # type: ignore[misc]
        "tokenizer.ggml.token_type": [1] * 256 + [3, 3, 1, 1], "tokenizer.ggml.merges": ["a b", "c d"],
        "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": TEMPLATE,
        f"{arch}.block_count": LAYERS, f"{arch}.context_length": 64, f"{arch}.embedding_length": HIDDEN,
        f"{arch}.feed_forward_length": FFN, f"{arch}.attention.head_count": 2,
        f"{arch}.attention.head_count_kv": 1, f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.freq_base": 5000.0, f"{arch}.rope.scaling.type": "linear", f"{arch}.rope.scaling.factor": 2.0}
    tensors = []
    for name, shape in _shapes(arch).items():
        for part, short in _GGUF_PARTS.items():
            name = name.replace(part, short)
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        tensors.append(Tensor(name, shape[::-1], F32, bytes(4 * count)))
    return Seed({"model.gguf": gguf(metadata, tensors)}, metadata, tuple(tensors))


def _directory(architecture: str, pre: str, *, shards: int) -> Seed:
    family = architecture.removesuffix("ForCausalLM").lower()
    config = {"architectures": [architecture], "model_type": family, "hidden_size": HIDDEN, "intermediate_size": FFN,
              "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "num_hidden_layers": LAYERS,
              "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": True,
              "hidden_act": "silu", "rope_theta": 5000.0, "rope_scaling": {
                  "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 32}}
    alphabet = tiny.metadata()["tokenizer.ggml.tokens"][:256]  # type: ignore[index]
    vocab = {piece: i for i, piece in enumerate([*alphabet, "ab"])}
    tokenizer = layout(pre, vocab, [["a", "b"]], [(257, "<s>", True), (258, "</s>", True), (259, "<tool>", False)])
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}}}
    files: dict[str, object] = {
        "config.json": config, "tokenizer.json": tokenizer, "generation_config.json": {"eos_token_id": [258]},
        "tokenizer_config.json": {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True,
                                  "chat_template": TEMPLATE},
        "special_tokens_map.json": {"bos_token": {"content": "<s>"}}}
    weights = _weights(_shapes(family), shards)
    return Seed({name: json.dumps(value).encode() for name, value in files.items()} | weights)


def _weights(shapes: dict[str, tuple[int, ...]], shards: int) -> dict[str, bytes]:
    if shards == 1:
        return {"model.safetensors": safetensors(shapes)}
    files, where = {}, {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        mine = dict(list(shapes.items())[i::shards])
        files[name] = safetensors(mine)
        where |= dict.fromkeys(mine, name)
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    return files | {"model.safetensors.index.json": json.dumps(index).encode()}


def safetensors(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """Zeros of these shapes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        nbytes = 4 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + nbytes]}
        end += nbytes
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(end)
