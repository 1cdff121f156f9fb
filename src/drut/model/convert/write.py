"""Writers of the two containers. Tensors are made one by one, so that only one at a time is in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from drut.formats.encoding import Encoding
from drut.formats.planes import U8
from drut.model.weights.ggml_types import GGML_TYPES

ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64, _INT64 = 4, 5, 6, 7, 8, 9, 10, 11
_CODES = {_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<?", _UINT64: "<Q", _INT64: "<q"}
_TYPE_NUMBERS = {name: number for number, (name, _, _) in GGML_TYPES.items()}


@dataclass(frozen=True)
class PendingTensor:
    """A tensor to write: `make` returns its `nbytes` bytes. `shape` is outermost first, `dtype` an encoding or I8."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    make: Callable[[], U8]

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], enc: Encoding, make: Callable[[], U8]) -> PendingTensor:
        rows = int(np.prod(shape[:-1], dtype=np.int64))
        return cls(name, shape, enc.name, rows * enc.row_bytes(shape[-1]), make)


def write_gguf(path: Path, metadata: Mapping[str, object], tensors: Sequence[PendingTensor]) -> None:
    """Writes a GGUF file, version 3. Integers become uint32 if they fit, integers in lists int32; floats float32."""
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
        for key, value in metadata.items():
            file.write(_string(key) + _value(value))
        offset = 0
        for t in tensors:
            dims = struct.pack(f"<I{len(t.shape)}Q", len(t.shape), *reversed(t.shape))
            file.write(_string(t.name) + dims + struct.pack("<IQ", _TYPE_NUMBERS[t.dtype], offset))
            offset += t.nbytes + -t.nbytes % ALIGNMENT
        file.write(bytes(-file.tell() % ALIGNMENT))
        for t in tensors:
            _put(file, t)
            file.write(bytes(-t.nbytes % ALIGNMENT))


def write_safetensors(path: Path, tensors: Sequence[PendingTensor]) -> None:
    """Writes a safetensors file; `dtype` is the format's own name."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for t in tensors:
        header[t.name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [end, end + t.nbytes]}
        end += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in tensors:
            _put(file, t)


def _put(file: BinaryIO, t: PendingTensor) -> None:
    data = np.ascontiguousarray(t.make())
    assert data.nbytes == t.nbytes, t.name
    file.write(data.data)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: object) -> bytes:
    """Returns type and value as bytes."""
    if isinstance(value, list):
        kind = _kind(value, in_list=True)
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(_scalar(kind, v) for v in value)
    kind = _kind([value], in_list=False)
    return struct.pack("<I", kind) + _scalar(kind, value)


def _kind(values: Iterable[object], *, in_list: bool) -> int:
    """Returns the smallest type that fits all of `values`, which have the same kind."""
    held = list(values)
    first = held[0] if held else 0
    if isinstance(first, str):
        return _STRING
    if isinstance(first, bool):
        return _BOOL
    if isinstance(first, float):
        return _FLOAT32
    low, high = min(held, default=0), max(held, default=0)  # type: ignore[type-var]
    if in_list or low < 0:  # type: ignore[operator]
        return _INT32 if low >= -(1 << 31) and high < 1 << 31 else _INT64  # type: ignore[operator]
    return _UINT32 if high < 1 << 32 else _UINT64  # type: ignore[operator]


def _scalar(kind: int, value: object) -> bytes:
    return _string(str(value)) if kind == _STRING else struct.pack(_CODES[kind], value)
