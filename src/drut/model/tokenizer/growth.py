"""How much longer a tokenizer's normalizer may make a text.

Ten replacements in a row, of one letter by ten, would turn a short prompt into more than memory holds.
"""

from __future__ import annotations

import base64
from typing import Any

from drut.errors import ModelFileError, UnsupportedError

MOST = 64  # times
_MOST_REPLACED = 256  # bytes that a map may make of one character; compositions of Unicode need 33
_FIXED = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "Strip": 1, "StripAccents": 1, "Nmt": 1,
          "BertNormalizer": 36, "ByteLevel": 2}


def check_growth(step: dict[str, Any] | None, name: str) -> None:
    """UnsupportedError for a normalizer that is not known, or that could make a text many times longer."""
    growth, steps = 1, [step] if step else []
    for step in steps:
        if step["type"] == "Sequence":
            steps.extend(step["normalizers"])
        else:
            growth *= _growth(step, name)
        if growth > MOST:
            raise UnsupportedError(f"{name}: tokenizer normalizer {step['type']} is not supported this way")


def check_chars_map(data: bytes, what: str) -> None:
    """ModelFileError for a map of characters that could make a text many times longer."""
    texts = data[4 + int.from_bytes(data[:4], "little"):]
    if max(map(len, texts.split(b"\0"))) > _MOST_REPLACED:
        raise ModelFileError(f"{what}: a character becomes more than {_MOST_REPLACED} bytes")


def _replaced(content: str, text: str | None) -> int:
    """`text`: what is replaced; None for an expression, which may match between all characters."""
    if not content:
        return 1
    return -(-len(content) // len(text)) if text else 1 + len(content)


def _growth(step: dict[str, Any], name: str) -> int:
    """How many times longer a step can make a text."""
    if step["type"] == "Replace":
        return _replaced(step["content"], step["pattern"].get("String"))
    if step["type"] == "Prepend":  # once for a text, whatever its length
        return 1 if len(step["prepend"]) <= MOST else MOST + 1
    if step["type"] == "Precompiled":
        check_chars_map(base64.b64decode(step["precompiled_charsmap"] or ""), f"{name}: precompiled_charsmap")
        return _FIXED["NFKC"]
    return _FIXED.get(step["type"], MOST + 1)
