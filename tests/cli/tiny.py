"""A whole model in 110 kB: family llama, every byte a token, a chat template. It answers in lower case.

The template refuses messages of role `tool`.
"""

from __future__ import annotations

import numpy as np

from drut.model.tokenizer.pieces import byte_alphabet
from tests.model.gguf_writer import ARRAY, F32, STRING, Tensor, Typed, gguf

HIDDEN, HEADS, KV_HEADS, FFN, LAYERS, CONTEXT = 32, 2, 1, 64, 2, 160
VOCAB = 258
BOS, EOS = 256, 257
TEMPLATE = """\
{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}\
[{{ message.role[0] }}]{{ message.content }}
{% endfor %}[a]"""


def metadata() -> dict[str, object]:
    alphabet = byte_alphabet()
    return {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "general.license": "cc0-1.0",
        "llama.block_count": LAYERS,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 5000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*sorted(alphabet, key=alphabet.__getitem__), "<bos>", "<eos>"],
        "tokenizer.ggml.token_type": [1] * 256 + [3, 3],
        "tokenizer.ggml.merges": Typed(ARRAY, [], item=STRING),
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.chat_template": TEMPLATE,
    }


def tensors(vocab: int = VOCAB) -> list[Tensor]:
    q, kv = HIDDEN, HIDDEN // HEADS * KV_HEADS
    matrices = {
        "attn_q": (q, HIDDEN),
        "attn_k": (kv, HIDDEN),
        "attn_v": (kv, HIDDEN),
        "attn_output": (HIDDEN, q),
        "ffn_gate": (FFN, HIDDEN),
        "ffn_up": (FFN, HIDDEN),
        "ffn_down": (HIDDEN, FFN),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (vocab, HIDDEN), "output_norm": (HIDDEN,)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in matrices.items()}
        shapes |= {f"blk.{i}.{name}": (HIDDEN,) for name in ("attn_norm", "ffn_norm")}
    rng = np.random.default_rng(7)
    made = []
    for name, shape in shapes.items():
        values = rng.standard_normal(shape) * (0.5 if len(shape) == 2 else 0) + (len(shape) == 1)
        if name == "token_embd":
            letters = np.isin(np.arange(vocab), list(b"abcdefghijklmnopqrstuvwxyz"))
            values[~letters] *= 0.1
        made.append(Tensor(f"{name}.weight", shape[::-1], F32, values.astype("<f4").tobytes()))
    return made


def model(*more: str, **changes: object) -> bytes:
    """The file; `changes` replace values of the metadata (dots as __, None removes), `more` are further tokens."""
    pairs = metadata() | {key.replace("__", "."): value for key, value in changes.items()}
    for key, values in (("tokens", more), ("token_type", [4] * len(more))) if more else ():
        pairs[f"tokenizer.ggml.{key}"] = [*pairs[f"tokenizer.ggml.{key}"], *values]  # type: ignore[misc]
    return gguf({key: value for key, value in pairs.items() if value is not None}, tensors(VOCAB + len(more)))
