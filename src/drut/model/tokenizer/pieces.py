"""The bytes of a vocabulary entry, in general and as the first token of a text.

Two spellings exist. Byte-level vocabularies write each byte as one printable character; other vocabularies write text,
which the library's decoder transforms, and may write single bytes as `<0x0A>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, decoders

from drut.errors import UnsupportedError

_LONGEST_REPLACEMENT = 16  # maximum of characters, because a decoder must not lengthen a piece many times
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """Maps the character that spells each of the 256 bytes to its byte.

    Printable Latin-1 characters represent themselves; the other bytes, in order, have U+0100 and following.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (b for b in range(256) if b not in printable)
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


@dataclass(frozen=True)
class ByteLevelPieces:
    """Pieces whose characters each spell one byte; a piece with a character outside the alphabet is plain text."""

    alphabet: Mapping[str, int]
    stripped_spaces: int = 0

    def to_bytes(self, piece: str, *, first: bool = False) -> bytes:
        try:
            return bytes([self.alphabet[c] for c in piece])
        except KeyError:
            return piece.encode()


@dataclass(frozen=True)
class TextPieces:
    """Pieces of text. `decoder` decodes one piece, which may differ for the first of a text; None: no change.

    `byte_fallback`: `<0xNN>` is one byte. `stripped_spaces`: maximum of spaces at the start of a text that are not part
    of it.
    """

    decoder: decoders.Decoder | None = None
    byte_fallback: bool = False
    stripped_spaces: int = 0

    def to_bytes(self, piece: str, *, first: bool = False) -> bytes:
        if self.decoder is not None:
            piece = self.decoder.decode([piece] if first else ["", piece])
        if self.byte_fallback and (match := _BYTE.fullmatch(piece)):
            return bytes([int(match[1], 16)])
        return piece.encode()


Pieces = ByteLevelPieces | TextPieces


def pieces_of(decoder: dict[str, Any] | None, name: str) -> Pieces:
    """Returns the spelling that the decoder of a `tokenizer.json` reverses. Raises UnsupportedError, which names the
    decoder, if it is unknown.

    A step works on single pieces until `Fuse` joins them; after that only a `Strip` of leading spaces is supported.
    """
    steps = _steps(decoder)
    kinds = [step.get("type") for step in steps]
    if kinds in (["ByteLevel"], ["ByteLevel", "Fuse"]):
        return ByteLevelPieces(byte_alphabet())
    end = kinds.index("Fuse") if "Fuse" in kinds else len(kinds)
    single, joined = steps[:end], [step for step in steps[end:] if step["type"] != "Fuse"]
    byte_fallback = bool(single) and single[-1]["type"] == "ByteFallback"
    shown = single[:-1] if byte_fallback else single
    known = bool(steps) and all(map(_is_single, shown)) and len(joined) <= 1
    if not known or not all(_strips_spaces(step) for step in joined):
        listed = " + ".join(map(str, kinds)) or "none"
        raise UnsupportedError(f"{name}: tokenizer decoder {listed[:80]} is not supported")
    made = [_SINGLE[step["type"]](step) for step in shown]
    return TextPieces(decoders.Sequence(made) if made else None, byte_fallback,
                      joined[0]["start"] if joined else 0)


def _is_single(step: dict[str, Any]) -> bool:
    """Whether a step of the library works on each piece alone. A step that strips ends fails on short pieces."""
    return step["type"] in _SINGLE and len(step.get("content", "")) <= _LONGEST_REPLACEMENT and not step.get("stop")


def _strips_spaces(step: dict[str, Any]) -> bool:
    return step == step | {"type": "Strip", "content": " ", "stop": 0}


def _replace(step: Mapping[str, Any]) -> decoders.Decoder:
    [(kind, text)] = step["pattern"].items()
    return decoders.Replace(Regex(text) if kind == "Regex" else text, step["content"])


_SINGLE: dict[str, Callable[[Mapping[str, Any]], decoders.Decoder]] = {
    "Replace": _replace,
    "Strip": lambda step: decoders.Strip(step["content"], step["start"], step["stop"]),
    "Metaspace": lambda step: decoders.Metaspace(step["replacement"], step["prepend_scheme"], step["split"]),
    "WordPiece": lambda step: decoders.WordPiece(step["prefix"], step["cleanup"]),
}


def _steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Returns the steps of a decoder, including the steps of nested sequences."""
    if decoder is None:
        return []
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for inner in decoder["decoders"] for step in _steps(inner)]


def state_of(part: Any) -> dict[str, Any] | None:
    """Returns a part of `tokenizer.json` as the library parsed it, through its pickle state."""
    if part is None:
        return None
    state: dict[str, Any] = json.loads(part.__getstate__())
    return state
