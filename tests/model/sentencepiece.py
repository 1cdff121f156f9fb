"""A small SentencePiece vocabulary as GGUF metadata, and SentencePiece's way to merge, written out plainly."""

from __future__ import annotations

import json
from typing import Any

from tests.model.tokenizer_vocabularies import OWN

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6
TOOL = "<[tool]>"


def metadata(**changes: object) -> dict[str, Any]:
    """Bytes, letters and merged pieces, the earlier the higher their score; `changes` by key, None removes."""
    pieces = json.loads(OWN.read_text(encoding="utf-8"))["text"]["tokens"]
    tokens = ["<unk>", "<s>", "</s>", *pieces, TOOL]
    types = [UNKNOWN, CONTROL, CONTROL, *(BYTE if piece.startswith("<0x") else 1 for piece in pieces), USER_DEFINED]
    keys = {"model": "llama", "tokens": tokens, "token_type": types, "scores": [-float(i) for i in range(len(tokens))],
            "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **changes}
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def merged(text: str, given: dict[str, Any], *, prefix: bool = True) -> list[int]:
    """Ids of text without special tokens: the two neighbours whose piece has the highest score, the first of equals."""
    tokens, types = given["tokenizer.ggml.tokens"], given["tokenizer.ggml.token_type"]
    scores = given["tokenizer.ggml.scores"]
    ids = {token: i for i, token in enumerate(tokens) if types[i] not in (UNKNOWN, CONTROL, BYTE)}
    parts = list(("\u2581" if prefix and text else "") + text.replace(" ", "\u2581"))
    while True:
        found = [(-scores[ids[pair]], i) for i in range(len(parts) - 1) if (pair := parts[i] + parts[i + 1]) in ids]
        if not found:
            break
        _, at = min(found)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    out = []
    for part in parts:
        out += [ids[part]] if part in ids else [tokens.index(f"<0x{byte:02X}>") for byte in part.encode()]
    return out
