"""Mutants of a small file, opened by a reader of which only DrutError may come out."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

from drut.errors import DrutError
from drut.model.weights.source import TensorSource

MAX_PEAK_BYTES = 8 << 20
EDGES = [b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"9", b'"', b"["]


@contextlib.contextmanager
def memory_file() -> Iterator[Path]:
    """The path of a file that lives in memory: a thousand of them are written in milliseconds."""
    fd = os.memfd_create("fuzz")
    try:
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def mutants(seed: bytes, count: int) -> Iterator[bytes]:
    """Bytes replaced, flipped, removed and repeated; eight bytes replaced by the numbers that overflow."""
    rng = random.Random(1)
    for _ in range(count):
        raw = bytearray(seed)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(raw)) if raw else 0
            match rng.randrange(5):
                case 0:
                    raw[at : at + 1] = rng.choice(EDGES)
                case 1:
                    raw[at : at + 1] = bytes([seed[at % len(seed)] ^ 1 << rng.randrange(8)])
                case 2:
                    number = rng.choice([0, 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1])
                    raw[at : at + 8] = struct.pack("<Q", number)
                case 3:
                    del raw[at : at + rng.randint(1, 9)]
                case 4:
                    raw[at:at] = raw[at : at + rng.randint(1, 40)]
        yield bytes(raw)


def fuzz(open_file: Callable[[Path], TensorSource], seed: bytes, count: int) -> None:
    """Open `count` mutants of `seed`, read what opens: errors are ours, name the file; memory is bounded."""
    opened, complaints = 0, []
    tracemalloc.start()
    try:
        with memory_file() as path:
            for raw in mutants(seed, count):
                path.write_bytes(raw)
                try:
                    file = open_file(path)
                except DrutError as error:
                    complaints.append(str(error))
                    continue
                for name, info in file.tensors.items():
                    assert len(file.raw(name)) == info.nbytes
                file.close()
                opened += 1
        assert tracemalloc.get_traced_memory()[1] < MAX_PEAK_BYTES
    finally:
        tracemalloc.stop()
    assert all(str(path) in text and "\n" not in text for text in complaints)
    assert opened > 0 < len(complaints)  # both ways are taken
