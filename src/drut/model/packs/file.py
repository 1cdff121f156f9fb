"""A file of packed weights: a head, the bytes of each matrix, and a table of their places. It is mapped, not read, so
that processes share its memory and no new memory is allocated.

    0      magic, version, 0, offset and bytes of the table, SHA-256 of these fields and of the table
    4096   the matrices, each at a multiple of 64 bytes, with the layout that they have in memory
    ...    the table, JSON, up to the end of the file

The table has a CRC-32 for every `BLOCK` of a matrix; each is checked when the file is mapped.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from drut.machine import usable_cpus

MAGIC, VERSION = b"DRUTPACK", 1
ALIGN, DATA_AT, BLOCK = 64, 4096, 4 << 20
TABLE_MOST = 256 << 20
HUGE = 2 << 20  # bytes of a write: the system can cache, and map, whole pieces of this size in huge pages
CHECKERS = 8  # maximum of threads that verify checksums
_FIELDS = struct.Struct("<8sIIQQ")
_SUM = 32

Bytes = NDArray[np.uint8]


class PackError(Exception):
    """The file is not a complete pack of the requested key. The message has the reason, without the file's name."""


class PackForm(NamedTuple):
    """The form of one matrix of `n` outputs by `k` inputs: its role, its encoding, and its packed bytes."""

    role: str
    encoding: str
    n: int
    k: int
    nbytes: int


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    form: PackForm
    offset: int
    sums: list[int]  # CRC-32 of each block


class _Table(msgspec.Struct, frozen=True):
    key: str
    model: str
    matrices: list[_Entry]


class _Block(NamedTuple):
    start: int
    end: int
    sum: int


def pack_bytes(forms: Iterable[PackForm]) -> int:
    """Returns the bytes of a file of such matrices, without the table."""
    return DATA_AT + sum(_aligned(form.nbytes) for form in forms)


def write_pack(path: Path, key: str, model: str, matrices: Iterable[tuple[PackForm, Bytes]]) -> None:
    """Writes the file at `path` in place. Order: the head is written last, so that a truncated file has none. Raises
    OSError."""
    entries: list[_Entry] = []
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(1) as checksums:
        out = _Pieces(file)
        out.write(bytes(DATA_AT))
        for form, data in matrices:
            sums = checksums.submit(_sums, data)
            at = out.at
            out.write(data.data)
            out.write(bytes(_aligned(out.at) - out.at))
            entries.append(_Entry(form, at, sums.result()))
        table, at = msgspec.json.encode(_Table(key, model, entries)), out.at
        out.write(table)
        out.finish()
        fields = _FIELDS.pack(MAGIC, VERSION, 0, at, len(table))
        file.seek(0)
        file.write(fields + hashlib.sha256(fields + table).digest())


class _Pieces:
    """Writes a file from its start in whole pieces of HUGE bytes, whatever the sizes that `write` gets. `at`: bytes so
    far."""

    def __init__(self, file: BinaryIO) -> None:
        self.at = 0
        self._file, self._piece = file, memoryview(bytearray(HUGE))

    def write(self, data: bytes | memoryview) -> None:
        left = memoryview(data).cast("B")
        while left:
            begin = self.at % HUGE
            count = min(HUGE - begin, len(left))
            self._piece[begin : begin + count] = left[:count]
            self.at, left = self.at + count, left[count:]
            if self.at % HUGE == 0:
                self._put(self._piece)

    def finish(self) -> None:
        """Writes the rest."""
        self._put(self._piece[: self.at % HUGE])

    def _put(self, data: memoryview) -> None:
        while data:
            data = data[self._file.write(data) :]


def map_pack(path: Path, key: str, forms: Sequence[PackForm]) -> list[Bytes]:
    """Returns the packed bytes of each of `forms` in a read-only mapping of the file, after checking all of them.

    Raises PackError if the file is damaged, truncated, or has other weights; OSError if it cannot be read. Lifetime:
    the file must not be written while the mapping exists.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        table, end = _table(fd)
        if table.key != key or [entry.form for entry in table.matrices] != list(forms):
            raise PackError("it has other weights")
        _check(table.matrices, end)
        mapping = mmap.mmap(fd, end, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # not every file system supports it
            mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapping, np.uint8)
    blocks = [block for entry in table.matrices for block in _blocks(entry)]
    with ThreadPoolExecutor(min(CHECKERS, len(usable_cpus()))) as checkers:
        for _ in checkers.map(lambda block: _check_block(memory, block), blocks):
            pass  # raises the first error of a checker thread
    return [memory[e.offset :][: e.form.nbytes] for e in table.matrices]


def _table(fd: int) -> tuple[_Table, int]:
    """Returns the table and its offset, which is the end of the matrices."""
    size, head = os.fstat(fd).st_size, _exactly(fd, 0, _FIELDS.size + _SUM)
    magic, version, _, at, nbytes = _FIELDS.unpack_from(head)
    if magic != MAGIC or version != VERSION:
        raise PackError("it does not have this format")
    if not DATA_AT <= at <= size or at + nbytes != size or nbytes > TABLE_MOST:
        raise PackError(f"it has {size} bytes instead of {at + nbytes}")
    text = _exactly(fd, at, nbytes)
    if hashlib.sha256(head[: _FIELDS.size] + text).digest() != head[_FIELDS.size :]:
        raise PackError("the checksum of its table is wrong")
    try:
        return msgspec.json.decode(text, type=_Table), at
    except msgspec.DecodeError as error:
        raise PackError(f"its table is damaged: {error}") from None


def _check(entries: list[_Entry], end: int) -> None:
    """Checks that each entry lies behind the previous one and before the table, and has its checksums."""
    at = DATA_AT
    for e in entries:
        role, nbytes = e.form.role, e.form.nbytes
        if e.offset % ALIGN or e.offset < at or not 0 <= nbytes <= end - e.offset:
            raise PackError(f"its table has an impossible place for {role!r}")
        if len(e.sums) != -(-nbytes // BLOCK):
            raise PackError(f"its table lacks checksums of {role!r}")
        at = e.offset + nbytes


def _blocks(entry: _Entry) -> Iterator[_Block]:
    end = entry.offset + entry.form.nbytes
    for start, crc in zip(range(entry.offset, end, BLOCK), entry.sums, strict=True):
        yield _Block(start, min(start + BLOCK, end), crc)


def _check_block(memory: Bytes, block: _Block) -> None:
    if zlib.crc32(memory.data[block.start : block.end]) != block.sum:
        raise PackError(f"the checksum of bytes {block.start} to {block.end} is wrong")


def _exactly(fd: int, at: int, nbytes: int) -> bytes:
    out = b""
    while len(out) < nbytes:
        piece = os.pread(fd, nbytes - len(out), at + len(out))
        if not piece:
            raise PackError("it is truncated")
        out += piece
    return out


def _sums(data: Bytes) -> list[int]:
    return [zlib.crc32(data[at : at + BLOCK].data) for at in range(0, data.nbytes, BLOCK)]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
