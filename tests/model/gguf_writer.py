"""Writes tiny GGUF files, right or wrong on purpose: every field can be given as it should not be."""

from __future__ import annotations

import struct
from dataclasses import dataclass

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
INT32, STRING, ARRAY = 5, 8, 9
F32, Q4_0 = 0, 2


@dataclass
class Typed:
    """A value of a given GGUF type. Of an array: `item` is its element type, `count` the length it claims."""

    kind: int
    value: object
    item: int = 4
    count: int | None = None


@dataclass
class Tensor:
    """A row of the tensor table; `dims` innermost first, `offset` None for the next free aligned one."""

    name: str | bytes
    dims: tuple[int, ...]
    kind: int
    data: bytes
    offset: int | None = None
    n_dims: int | None = None


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: object) -> bytes:
    return string(value) if kind == STRING else struct.pack("<" + SCALARS[kind], value)


def typed(value: object) -> Typed:
    if isinstance(value, Typed):
        return value
    if isinstance(value, list):
        return Typed(ARRAY, value, item=typed(value[0]).kind)
    return Typed({bool: 7, int: 4, float: 6, str: STRING, bytes: STRING}[type(value)], value)


def encode(value: object) -> bytes:
    """Type and value."""
    t = typed(value)
    if t.kind != ARRAY:
        body = t.value if isinstance(t.value, bytes) and t.kind != STRING else scalar(t.kind, t.value)
        return struct.pack("<I", t.kind) + body
    if isinstance(t.value, bytes):
        body, count = t.value, 0
    else:
        body, count = b"".join(scalar(t.item, v) for v in t.value), len(t.value)
    return struct.pack("<IIQ", ARRAY, t.item, count if t.count is None else t.count) + body


def gguf(
    metadata: list[tuple[str | bytes, object]] | dict[str, object] = {},  # noqa: B006
    tensors: list[Tensor] = [],  # noqa: B006
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """The bytes of a file. `alignment` is how the data is laid out; the key must be given to say so."""
    pairs = list(metadata.items()) if isinstance(metadata, dict) else metadata
    n_keys = len(pairs) if n_keys is None else n_keys
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    out = magic + struct.pack("<IQQ", version, n_tensors, n_keys)
    for key, value in pairs:
        out += string(key) + encode(value)
    data = b""
    for t in tensors:
        out += string(t.name) + struct.pack("<I", len(t.dims) if t.n_dims is None else t.n_dims)
        offset = len(data) if t.offset is None else t.offset
        out += b"".join(struct.pack("<Q", d) for d in t.dims) + struct.pack("<IQ", t.kind, offset)
        data += t.data + bytes(-len(t.data) % alignment)
    return out + bytes(-len(out) % alignment) + data
