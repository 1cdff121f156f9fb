"""Bounds the factor by which a tokenizer's normalizer may lengthen a text.

Ten replacements in a row, of one letter by ten, would expand a short prompt beyond the memory.
"""

from __future__ import annotations

import base64
from typing import Any

from drut.errors import ModelFileError, UnsupportedError

MAX = 64  # maximum factor
_MAX_REPLACED = 256  # maximum of bytes that a map may make of one character; compositions of Unicode need 33
_FIXED = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "Strip": 1, "StripAccents": 1, "Nmt": 1,
          "BertNormalizer": 36, "ByteLevel": 2}


def check_growth(step: dict[str, Any] | None, name: str) -> None:
    """Raises UnsupportedError for a normalizer that is unknown, or that could lengthen a text by more than MAX."""
    growth, steps = 1, [step] if step else []
    for step in steps:
        if step["type"] == "Sequence":
            steps.extend(step["normalizers"])
        else:
            growth *= _growth(step, name)
        if growth > MAX:
            raise UnsupportedError(f"{name}: tokenizer normalizer {step['type']} is not supported with these settings")


def check_chars_map(data: bytes, what: str) -> None:
    """Raises ModelFileError for a map of characters that could lengthen a text too much."""
    texts = data[4 + int.from_bytes(data[:4], "little"):]
    if max(map(len, texts.split(b"\0"))) > _MAX_REPLACED:
        raise ModelFileError(f"{what}: a character becomes more than {_MAX_REPLACED} bytes")


def _replaced(content: str, text: str | None) -> int:
    """Returns the growth by replacing `text` with `content`; None: an expression, which may match between all
    characters."""
    if not content:
        return 1
    return -(-len(content) // len(text)) if text else 1 + len(content)


def _growth(step: dict[str, Any], name: str) -> int:
    """Returns the maximum factor by which a step lengthens a text."""
    if step["type"] == "Replace":
        return _replaced(step["content"], step["pattern"].get("String"))
    if step["type"] == "Prepend":  # once per text, independent of its length
        return 1 if len(step["prepend"]) <= MAX else MAX + 1
    if step["type"] == "Precompiled":
        check_chars_map(base64.b64decode(step["precompiled_charsmap"] or ""), f"{name}: precompiled_charsmap")
        return _FIXED["NFKC"]
    return _FIXED.get(step["type"], MAX + 1)
