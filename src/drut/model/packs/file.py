"""A file of packed weights: a head, the bytes of each matrix, and a table that says where they are.

    0      magic, version, 0, offset and bytes of the table, SHA-256 of all these and of the table
    4096   the matrices, each at a multiple of 64 bytes, as they lie in memory
    ...    the table, JSON, up to the end of the file

The table has a CRC-32 for every `BLOCK` of a matrix; each is checked as it is read.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION = b"DRUTPACK", 1
ALIGN, DATA_AT, BLOCK = 64, 4096, 4 << 20
TABLE_MOST = 256 << 20
READERS = 2  # threads; with more it is no quicker
_FIELDS = struct.Struct("<8sIIQQ")
_SUM = 32

Bytes = NDArray[np.uint8]
Room = Callable[[int], Bytes]  # so many bytes of memory, zero


class PackError(Exception):
    """The file is not a whole pack of the key asked for. The message says why, without the file's name."""


class Form(NamedTuple):
    """What one matrix of `n` outputs by `k` inputs is: its role, how it was encoded, and its bytes when packed."""

    role: str
    encoding: str
    n: int
    k: int
    nbytes: int


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    form: Form
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


def pack_bytes(forms: Iterable[Form]) -> int:
    """Bytes of a file of such matrices, all but the table's."""
    return DATA_AT + sum(_aligned(form.nbytes) for form in forms)


def write_pack(path: Path, key: str, model: str, matrices: Iterable[tuple[Form, Bytes]]) -> None:
    """Writes the file at `path` in place. The head comes last: a file that was cut short has none. OSError."""
    entries: list[_Entry] = []
    with path.open("wb") as file, ThreadPoolExecutor(1) as beside:
        at = DATA_AT
        for form, data in matrices:
            sums = beside.submit(_sums, data)
            file.seek(at)
            file.write(data.data)
            entries.append(_Entry(form, at, sums.result()))
            at += _aligned(form.nbytes)
        table = msgspec.json.encode(_Table(key, model, entries))
        file.seek(at)
        file.write(table)
        fields = _FIELDS.pack(MAGIC, VERSION, 0, at, len(table))
        file.seek(0)
        file.write(fields + hashlib.sha256(fields + table).digest())


def read_pack(path: Path, key: str, forms: Sequence[Form], room: Room) -> list[Bytes]:
    """The packed bytes of each of `forms`, read into one piece of `room`, all of them checked.

    PackError where the file is damaged, cut short, or of other weights; OSError where it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        table, end = _table(fd)
        if table.key != key or [entry.form for entry in table.matrices] != list(forms):
            raise PackError("it holds other weights")
        _check(table.matrices, end)
        memory = room(end - DATA_AT)
        blocks = [block for entry in table.matrices for block in _blocks(entry)]
        with ThreadPoolExecutor(READERS) as readers:
            for _ in readers.map(lambda block: _read_block(fd, memory, block), blocks):
                pass  # the first error of any is raised here
    finally:
        os.close(fd)
    return [memory[e.offset - DATA_AT :][: e.form.nbytes] for e in table.matrices]


def _table(fd: int) -> tuple[_Table, int]:
    """The table and where it begins, which is where the matrices end."""
    size, head = os.fstat(fd).st_size, _exactly(fd, 0, _FIELDS.size + _SUM)
    magic, version, _, at, nbytes = _FIELDS.unpack_from(head)
    if magic != MAGIC or version != VERSION:
        raise PackError("it is not of this format")
    if not DATA_AT <= at <= size or at + nbytes != size or nbytes > TABLE_MOST:
        raise PackError(f"it has {size} bytes, not the {at + nbytes} it should")
    text = _exactly(fd, at, nbytes)
    if hashlib.sha256(head[: _FIELDS.size] + text).digest() != head[_FIELDS.size :]:
        raise PackError("the checksum of its table is wrong")
    try:
        return msgspec.json.decode(text, type=_Table), at
    except msgspec.DecodeError as error:
        raise PackError(f"its table is damaged: {error}") from None


def _check(entries: list[_Entry], end: int) -> None:
    """Each lies behind the one before it and before the table, and has its checksums."""
    at = DATA_AT
    for e in entries:
        role, nbytes = e.form.role, e.form.nbytes
        if e.offset % ALIGN or e.offset < at or not 0 <= nbytes <= end - e.offset:
            raise PackError(f"its table puts {role!r} where it cannot be")
        if len(e.sums) != -(-nbytes // BLOCK):
            raise PackError(f"its table lacks checksums of {role!r}")
        at = e.offset + nbytes


def _blocks(entry: _Entry) -> Iterator[_Block]:
    end = entry.offset + entry.form.nbytes
    for start, crc in zip(range(entry.offset, end, BLOCK), entry.sums, strict=True):
        yield _Block(start, min(start + BLOCK, end), crc)


def _read_block(fd: int, memory: Bytes, block: _Block) -> None:
    view = memory.data[block.start - DATA_AT : block.end - DATA_AT]
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], block.start + done)
        if count == 0:
            raise PackError("it became shorter while it was read")
        done += count
    if zlib.crc32(view) != block.sum:
        raise PackError(f"the checksum of bytes {block.start} to {block.end} is wrong")


def _exactly(fd: int, at: int, nbytes: int) -> bytes:
    out = b""
    while len(out) < nbytes:
        piece = os.pread(fd, nbytes - len(out), at + len(out))
        if not piece:
            raise PackError("it is cut short")
        out += piece
    return out


def _sums(data: Bytes) -> list[int]:
    return [zlib.crc32(data[at : at + BLOCK].data) for at in range(0, data.nbytes, BLOCK)]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
