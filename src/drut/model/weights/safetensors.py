"""Safetensors files: one, or a set of shards with an index. Source: the safetensors format's description.

Layout: header length (u64), header (a JSON object: name -> dtype, shape, data_offsets), the tensors' bytes
without gaps, in the order of their offsets, up to the end of the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, TypeGuard

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError
from drut.model.weights.json_file import parse_json, read_json
from drut.model.weights.mapping import TensorFile, quote
from drut.model.weights.same import same_tensor
from drut.model.weights.source import TensorInfo, TensorSource

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
MAX_DIMS = 8
MAX_ELEMENTS = 1 << 40
MAX_SHARDS = 1000
MAX_SHARD_NAME = 255  # characters; no file system allows more

# Bits of one element. Drut computes with F32, F16 and BF16; the others can only be listed.
DTYPE_BITS: dict[str, int] = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "C64": 64,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


class SafetensorsFile(TensorFile):
    """An open safetensors file: its tensors and the strings of its `__metadata__`.

    Raises ModelFileError, which names file and tensor, if dtypes, shapes and offsets do not describe the file.
    """

    def _read(self) -> tuple[Mapping[str, object], Mapping[str, TensorInfo]]:
        header, start = self._read_header()
        notes = header.pop("__metadata__", {})
        if not isinstance(notes, dict) or not all(isinstance(v, str) for v in notes.values()):
            self._fail("__metadata__ is not an object of strings")
        return notes, self._table(header, start)

    def _read_header(self) -> tuple[dict[str, object], int]:
        """Returns the header and the offset of the first byte after it."""
        data, size = self._file.buffer, self._file.size
        if size < 8:
            self._fail("too short for a safetensors file (truncated?)")
        length = int.from_bytes(data[:8], "little")
        if length > MAX_HEADER_BYTES:
            self._fail(f"not a safetensors file, or its header of {length} bytes is longer than {MAX_HEADER_BYTES}")
        if length > size - 8:
            self._fail(f"a header of {length} bytes in a file of {size} (truncated?)")
        raw = data[8 : 8 + length]
        if not raw.startswith(b"{"):
            self._fail("not a safetensors file (the header is not a JSON object)")
        return parse_json(raw, self.path, "the header"), 8 + length

    def _table(self, header: dict[str, object], start: int) -> dict[str, TensorInfo]:
        infos = [self._tensor(name, entry, start) for name, entry in header.items()]
        infos.sort(key=lambda t: (t.offset, t.nbytes))
        end = start
        for info in infos:
            if info.offset != end:
                self._fail(f"tensor {quote(info.name)} starts at byte {info.offset}, not at {end}")
            end += info.nbytes
        if end != self._file.size:
            self._fail(f"the tensors end at byte {end} but the file has {self._file.size} (truncated?)")
        return {info.name: info for info in infos}

    def _tensor(self, name: str, entry: object, start: int) -> TensorInfo:
        what = f"tensor {quote(name)}"
        if not isinstance(entry, dict):
            self._fail(f"{what} is not described by a JSON object")
        dtype, shape, span = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
            self._fail(f"{what} has unknown dtype {quote(str(dtype))}")
        if not _is_counts(shape) or len(shape) > MAX_DIMS:
            self._fail(f"{what} has no valid shape")
        if not _is_counts(span) or len(span) != 2:
            self._fail(f"{what} has no valid data_offsets")
        elements = 1
        for dim in shape:
            elements *= dim
            if elements > MAX_ELEMENTS:
                self._fail(f"{what} has more than {MAX_ELEMENTS} elements")
        begin, end = span
        bits = elements * DTYPE_BITS[dtype]
        if bits % 8 or end - begin != bits // 8:
            self._fail(f"{what} has {bits / 8:g} bytes by shape and dtype, but {end - begin} by its offsets")
        return TensorInfo(name, tuple(shape), dtype, start + begin, end - begin)

    def _fail(self, message: str) -> NoReturn:
        raise ModelFileError(f"{self.path}: {message}")


class ShardedSafetensors:
    """Several safetensors files as one source, by the table `weight_map` (tensor -> file) of an index."""

    def __init__(self, shards: Mapping[str, SafetensorsFile], weight_map: Mapping[str, str]) -> None:
        self._shards, self._where = shards, weight_map
        self._tensors = MappingProxyType({name: shards[at].tensors[name] for name, at in weight_map.items()})

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Tensors by name; each offset is relative to the tensor's own shard."""
        return self._tensors

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Does what `SafetensorsFile.raw` does."""
        return self._shard(name).raw(name)

    def columns(self, name: str) -> NDArray[np.int32] | None:
        """Returns None, as for a `SafetensorsFile`."""
        return None

    def release(self, name: str) -> None:
        """Does what `SafetensorsFile.release` does."""
        self._shard(name).release(name)

    def close(self) -> None:
        """Closes every shard."""
        for shard in self._shards.values():
            shard.close()

    def _shard(self, name: str) -> SafetensorsFile:
        if name not in self._where:
            raise ModelFileError(f"tensor {name!r} is in no shard of the model")
        return self._shards[self._where[name]]


def open_safetensors(directory: str | os.PathLike[str]) -> TensorSource:
    """Opens the weights of an HF-style directory: `model.safetensors`, else the shards that its index names.

    Raises ModelFileError if neither exists, or the index names files outside the directory, missing files, or tensors
    that are not in their shard.
    """
    folder = Path(directory)
    if (folder / SINGLE).is_file():
        return SafetensorsFile(folder / SINGLE)
    index = folder / INDEX
    if not index.is_file():
        raise ModelFileError(f"{folder}: has neither {SINGLE} nor {INDEX}")
    weight_map = read_index(index)
    shards: dict[str, SafetensorsFile] = {}
    try:
        for name, file in weight_map.items():
            if file not in shards:
                shards[file] = SafetensorsFile(folder / file)
            if name not in shards[file].tensors:
                raise ModelFileError(f"{index}: tensor {quote(name)} is not in the shard {file!r}")
        return ShardedSafetensors(shards, weight_map | _unlisted(shards, weight_map, index))
    except BaseException:
        for shard in shards.values():
            shard.close()
        raise


def _unlisted(shards: Mapping[str, SafetensorsFile], weight_map: Mapping[str, str], index: Path) -> dict[str, str]:
    """Maps tensors that are in a shard and not in the index to their shard. `transformers` reads them, too.

    Raises ModelFileError for a tensor that is in two shards with different bytes.
    """
    found: dict[str, str] = {}
    for file, shard in shards.items():
        for name in shard.tensors:
            first = weight_map.get(name) or found.setdefault(name, file)
            if first != file and not same_tensor(shards[first], name, shard, name):
                raise ModelFileError(f"{index}: tensor {quote(name)} differs between the shards {first!r} and {file!r}")
    return found


def read_index(index: Path) -> dict[str, str]:
    """Maps each tensor to its shard; a shard is a plain name of a safetensors file next to the index."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{index}: weight_map is missing or not a table of tensors")
    table: dict[str, str] = {}
    for name, file in weight_map.items():
        plain = isinstance(file, str) and file.endswith(".safetensors") and file == os.path.basename(file)
        if not plain or "\0" in file or len(file) > MAX_SHARD_NAME:
            raise ModelFileError(f"{index}: tensor {quote(name)} is not in a file next to the index")
        table[name] = file
    if len(set(table.values())) > MAX_SHARDS:
        raise ModelFileError(f"{index}: names more than {MAX_SHARDS} shards")
    return table


def _is_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)
