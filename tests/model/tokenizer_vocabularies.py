"""Vocabularies that tokenizers are compared on: published ones, and two of our own for ways to cut text."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from drut.model.tokenizer.splitting import SPLITTINGS
from drut.model.weights.gguf import GGUFFile
from tests.model.gguf_writer import ARRAY, Typed, gguf
from tests.model.tokenizer_texts import ENDS, endless, shared

GOLDEN = Path(__file__).parents[1] / "golden" / "tokenizers.json"
OWN = Path(__file__).parents[1] / "golden" / "own_vocabularies.json"
PUBLISHED = ("aquila", "baichuan", "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4",
             "gpt-2", "gpt-neox", "llama-bpe", "llama-spm", "mpt", "nomic-bert-moe", "phi-3", "qwen2", "qwen35",
             "refact", "starcoder")
COUNT, CHUNK = 2000, 100
DISTINCT = {splitting: pre for pre, splitting in reversed(SPLITTINGS.items())}  # the first name of each
CONTROL, TOOL = "<[bos]>", "<[tool]>"
Encode = Callable[[str, bool, bool], list[int]]  # text, with special tokens around it, with those in it


def own_metadata(pre: str) -> dict[str, Any]:
    """A small vocabulary of bytes, or of text, that is cut as `pre` names."""
    kind = "bytes" if SPLITTINGS[pre].bytes_spelled else "text"
    own = json.loads(OWN.read_text(encoding="utf-8"))[kind]
    tokens = own["tokens"]
    types = [6 if kind == "text" and token.startswith("<0x") else 1 for token in tokens]
    sizes = {"context_length": 64, "embedding_length": 32, "block_count": 1, "feed_forward_length": 32,
             "attention.head_count": 1, "attention.layer_norm_rms_epsilon": 1e-5}
    return {"general.architecture": "llama", **{f"llama.{key}": value for key, value in sizes.items()},
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": [*tokens, CONTROL, "<[eos]>", TOOL],
            "tokenizer.ggml.token_type": [*types, 3, 3, 4], "tokenizer.ggml.merges": own["merges"],
            "tokenizer.ggml.bos_token_id": len(tokens), "tokenizer.ggml.eos_token_id": len(tokens) + 1}


def own_file(pre: str) -> bytes:
    metadata = own_metadata(pre)
    key = "tokenizer.ggml.token_type"
    return gguf(metadata | {key: Typed(ARRAY, metadata[key], item=5)})


def published_metadata(folder: Path, name: str) -> dict[str, Any]:
    file = GGUFFile(folder / f"ggml-vocab-{name}.gguf")
    try:
        return dict(file.metadata)
    finally:
        file.close()


def chunks(name: str, metadata: Mapping[str, Any]) -> Iterator[list[str]]:
    """The texts to compare, COUNT in all."""
    kinds = dict(zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True))
    added = [token for token, kind in kinds.items() if kind in (2, 3, 4)]
    ends = [token for token in ENDS if kinds.get(token, 3) != 3]
    made = (shared(text, name, ends) for text in endless(7, added[:40]))
    for _ in range(COUNT // CHUNK):
        yield list(islice(made, CHUNK))


def digest(encode: Encode, chunk: list[str]) -> str:
    """Of the ids of all texts, with special tokens around them and in them and without."""
    ids = [encode(text, add, parse) for text in chunk for add in (True, False) for parse in (True, False)]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:8]


def composed(name: str, metadata: Mapping[str, Any]) -> Callable[[str], str]:
    """What to do to a text for llama.cpp: it does not compose characters, as some published tokenizers do first."""
    pre = metadata.get("tokenizer.ggml.pre")
    if pre in SPLITTINGS and SPLITTINGS[pre].nfc:
        return lambda text: unicodedata.normalize("NFC", text)
    return str
