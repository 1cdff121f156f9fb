"""What bytes a vocabulary entry stands for.

Two spellings exist. Byte-level vocabularies write each byte as one printable character; SentencePiece-like
ones write text with U+2581 for a space, and single bytes as `<0x0A>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from drut.errors import UnsupportedError

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """The character that spells each of the 256 bytes, to its byte.

    Printable Latin-1 characters stand for themselves; the other bytes, in order, take U+0100 and on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (b for b in range(256) if b not in printable)
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


@dataclass(frozen=True)
class ByteLevelPieces:
    """Each character of a piece is one byte; a piece with a character outside the alphabet is plain text."""

    alphabet: Mapping[str, int]
    strips_first_space: bool = False

    def to_bytes(self, piece: str) -> bytes:
        try:
            return bytes([self.alphabet[c] for c in piece])
        except KeyError:
            return piece.encode()


@dataclass(frozen=True)
class SpacePieces:
    """Text with U+2581 for a space; `<0xNN>` is one byte where `byte_fallback` says so.

    `strips_first_space`: encoding puts a space in front of a text, so decoding a whole text takes one away.
    """

    byte_fallback: bool
    strips_first_space: bool

    def to_bytes(self, piece: str) -> bytes:
        if self.byte_fallback and (match := _BYTE.fullmatch(piece)):
            return bytes([int(match[1], 16)])
        return piece.replace(_SPACE, " ").encode()


Pieces = ByteLevelPieces | SpacePieces


def pieces_of(decoder: Mapping[str, object] | None, name: str) -> Pieces:
    """The spelling that the decoder of a `tokenizer.json` undoes. UnsupportedError names one not known."""
    steps = _steps(decoder)
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return ByteLevelPieces(byte_alphabet())
    if kinds == ["Metaspace"] and steps[0].get("replacement") == _SPACE:
        prefixed = steps[0].get("prepend_scheme", "always") != "never"
        return SpacePieces(byte_fallback=False, strips_first_space=prefixed)
    known = {
        "Replace": {"pattern": {"String": _SPACE}, "content": " "},
        "ByteFallback": {},
        "Fuse": {},
        "Strip": {"content": " ", "start": 1, "stop": 0},
    }
    if "Replace" in kinds and all(known.get(str(s.get("type"))) == _fields(s) for s in steps):
        return SpacePieces(byte_fallback="ByteFallback" in kinds, strips_first_space="Strip" in kinds)
    listed = " + ".join(map(str, kinds)) or "none"
    raise UnsupportedError(f"{name}: tokenizer decoder {listed[:80]} is not supported")


def _steps(decoder: Mapping[str, object] | None) -> list[Mapping[str, object]]:
    if decoder is None:
        return []
    inner = decoder.get("decoders")
    if decoder.get("type") != "Sequence" or not isinstance(inner, list):
        return [decoder]
    return [step for step in inner if isinstance(step, dict)]


def _fields(step: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in step.items() if key != "type"}
