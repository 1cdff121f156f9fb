"""GGUF files, versions 2 and 3, little endian. Every count, size, offset, type and name is checked.

Layout: magic, version, tensor count, key count, the keys (name, type, value), the tensor table (name,
dimensions innermost first, type, offset), padding to `general.alignment`, the tensors' bytes.
Source: the GGUF specification.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from drut.errors import ModelFileError
from drut.model.weights.ggml_types import GGML_TYPES
from drut.model.weights.mapping import MappedFile, TensorFile, quote
from drut.model.weights.source import TensorInfo

MAX_HEADER_BYTES = 256 << 20
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 20
MAX_NAME_BYTES = 65535
MAX_STRING_BYTES = 64 << 20
MAX_ARRAY_ITEMS = 8 << 20  # over all arrays of a file; a vocabulary of 262144 with its merges is 1.3 million
MAX_DIMS = 4
MAX_ELEMENTS = 1 << 40
MAX_ALIGNMENT = 1 << 16

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_SCALARS = {
    0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "u1", 10: "u8", 11: "i8", 12: "f8"
}  # fmt: skip
_UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9


class GGUFFile(TensorFile):
    """An open GGUF file: `metadata` by key (int, float, bool, str, or a list of one of them) and its tensors.

    A tensor of a ggml type that Drut does not compute with has that type's name as its encoding. Raises ModelFileError,
    which names file and item, for a damaged file.
    """

    def _read(self) -> tuple[Mapping[str, object], Mapping[str, TensorInfo]]:
        return _Reader(self._file).read()


class _Reader:
    """A cursor over the header. It allocates nothing for a count that the remaining bytes could not hold."""

    def __init__(self, file: MappedFile) -> None:
        self.path, self.size, self.data = file.path, file.size, file.buffer
        self.pos, self.end = 0, min(file.size, MAX_HEADER_BYTES)
        self.items_left = MAX_ARRAY_ITEMS

    def read(self) -> tuple[dict[str, object], dict[str, TensorInfo]]:
        n_tensors, n_keys = self.preamble()
        metadata: dict[str, object] = {}
        alignment = 32
        for i in range(n_keys):
            key = self.string(f"the name of key {i}", MAX_NAME_BYTES)
            if key in metadata:
                self.fail(f"key {quote(key)} occurs twice")
            kind = self.u32(f"key {quote(key)}")
            metadata[key] = self.value(kind, f"key {quote(key)}")
            if key == "general.alignment":
                alignment = self.alignment(kind, metadata[key])
        return metadata, self.tensor_table(n_tensors, alignment)

    def preamble(self) -> tuple[int, int]:
        """Returns tensor count and key count, after checking that a file of this size can hold so many."""
        if self.data[:4] != b"GGUF":
            self.fail("not a GGUF file (the magic is wrong)")
        self.pos = 4
        version = self.u32("the version")
        if version not in (2, 3):
            big_endian = version in (2 << 24, 3 << 24)
            self.fail(f"GGUF {'big-endian' if big_endian else f'version {version}'} is not supported")
        n_tensors, n_keys = self.u64("the tensor count"), self.u64("the key count")
        self.check_count(n_keys, 13, MAX_KEYS, "key count")  # name length, type, one byte of value
        self.check_count(n_tensors, 32, MAX_TENSORS, "tensor count")  # lengths, one dim, type, offset
        return n_tensors, n_keys

    def alignment(self, kind: int, value: object) -> int:
        if kind != _UINT32 or not isinstance(value, int) or value.bit_count() != 1 or value > MAX_ALIGNMENT:
            self.fail(f"key 'general.alignment' is not a uint32 power of two up to {MAX_ALIGNMENT}")
        return value

    def value(self, kind: int, what: str) -> object:
        if kind == _STRING:
            return self.string(what, MAX_STRING_BYTES)
        if kind == _ARRAY:
            return self.array(what)
        if kind not in _SCALARS:
            self.fail(f"{what} has unknown value type {kind}")
        return self.numbers(kind, 1, what)[0]

    def array(self, what: str) -> list[object]:
        kind, count = self.u32(what), self.u64(what)
        if kind != _STRING and kind not in _SCALARS:
            self.fail(f"{what} is an array of {'arrays' if kind == _ARRAY else f'unknown type {kind}'}")
        width = 8 if kind == _STRING else np.dtype(_SCALARS[kind]).itemsize
        self.check_count(count, width, self.items_left, f"array length of {what}")
        self.items_left -= count
        return self.strings(count, what) if kind == _STRING else self.numbers(kind, count, what)

    def numbers(self, kind: int, count: int, what: str) -> list[object]:
        dtype = np.dtype("<" + _SCALARS[kind])
        self.need(count * dtype.itemsize, what)
        values = np.frombuffer(self.data, dtype, count, self.pos)
        self.pos += values.nbytes
        if kind == _BOOL:
            if (values > 1).any():
                self.fail(f"{what} has a boolean that is neither 0 nor 1")
            values = values.astype(bool)
        return list(values.tolist())

    def strings(self, count: int, what: str) -> list[object]:
        """Returns `count` strings, read in one tight loop: reading the vocabulary is most of the work of opening a
        file."""
        data, pos, last = self.data, self.pos, self.end - 8
        length_at = _U64.unpack_from
        out: list[object] = []
        for i in range(count):
            if pos > last:
                self.pos = pos
                self.need(8, f"string {i} of {what}")
            start = pos + 8
            pos = start + length_at(data, pos)[0]
            if pos > self.end:
                self.pos = start
                self.need(pos - start, f"string {i} of {what}")
            try:
                out.append(data[start:pos].decode())
            except UnicodeDecodeError:
                self.fail(f"string {i} of {what} is not valid UTF-8")
        self.pos = pos
        return out

    def tensor_table(self, count: int, alignment: int) -> dict[str, TensorInfo]:
        table: dict[str, TensorInfo] = {}
        for i in range(count):
            info = self.tensor(i, alignment)
            if info.name in table:
                self.fail(f"tensor {quote(info.name)} occurs twice")
            table[info.name] = info
        base = -(-self.pos // alignment) * alignment
        placed = {n: TensorInfo(n, t.shape, t.encoding, base + t.offset, t.nbytes) for n, t in table.items()}
        end, before = base, ""
        for info in sorted(placed.values(), key=lambda t: t.offset):
            if info.offset < end:
                self.fail(f"tensors {quote(before)} and {quote(info.name)} overlap")
            end, before = info.offset + info.nbytes, info.name
            if end > self.size:
                self.fail(f"tensor {quote(before)} ends at byte {end}, but the file at {self.size} (truncated?)")
        return placed

    def tensor(self, i: int, alignment: int) -> TensorInfo:
        """Returns one entry of the table; its offset is relative to the data section."""
        name = self.string(f"the name of tensor {i}", MAX_NAME_BYTES)
        what = f"tensor {quote(name)}"
        n_dims = self.u32(what)
        if not 1 <= n_dims <= MAX_DIMS:
            self.fail(f"{what} has {n_dims} dimensions, not 1 to {MAX_DIMS}")
        shape = tuple(self.u64(what) for _ in range(n_dims))[::-1]
        kind, offset = self.u32(what), self.u64(what)
        if kind not in GGML_TYPES:
            self.fail(f"{what} has unknown type {kind}")
        encoding, block, block_bytes = GGML_TYPES[kind]
        elements = 1
        for dim in shape:
            elements *= dim
            if dim < 1 or elements > MAX_ELEMENTS:
                self.fail(f"{what} has the impossible shape {shape}")
        if shape[-1] % block:
            self.fail(f"{what} has rows of {shape[-1]} elements, not whole {encoding} blocks of {block}")
        if offset % alignment:
            self.fail(f"{what} has offset {offset}, which is not a multiple of {alignment}")
        return TensorInfo(name, shape, encoding, offset, elements // block * block_bytes)

    def u32(self, what: str) -> int:
        self.need(4, what)
        self.pos += 4
        return int(_U32.unpack_from(self.data, self.pos - 4)[0])

    def u64(self, what: str) -> int:
        self.need(8, what)
        self.pos += 8
        return int(_U64.unpack_from(self.data, self.pos - 8)[0])

    def string(self, what: str, limit: int) -> str:
        size = self.u64(what)
        if size > limit:
            self.fail(f"{what} is a string of {size} bytes; the maximum is {limit}")
        self.need(size, what)
        self.pos += size
        try:
            return self.data[self.pos - size : self.pos].decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not valid UTF-8")

    def check_count(self, count: int, least_bytes: int, limit: int, what: str) -> None:
        if count > limit or count * least_bytes > self.end - self.pos:
            self.fail(f"{what} of {count} is more than the file can hold or Drut's maximum")

    def need(self, nbytes: int, what: str) -> None:
        if nbytes > self.end - self.pos:
            if self.end < self.size:
                self.fail(f"{what} lies past the first {MAX_HEADER_BYTES} bytes, the maximum of a header")
            self.fail(f"the file ends inside {what} (truncated?)")

    def fail(self, message: str) -> NoReturn:
        raise ModelFileError(f"{self.path}: {message}")
