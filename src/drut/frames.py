"""Messages between processes of one machine: frames of bytes, each behind its length in four bytes."""

from __future__ import annotations

import asyncio
import socket
import struct

LENGTH = struct.Struct("<I")
MOST_BYTES = 1 << 30  # of one frame; a length beyond it is no length


def frame(data: bytes) -> bytes:
    """`data` as it is sent."""
    return LENGTH.pack(len(data)) + data


def read_frame(sock: socket.socket) -> bytes | None:
    """The data of one frame, None at the end of the stream. Raises OSError for one that is too long."""
    header = _read(sock, LENGTH.size)
    return None if header is None else _read(sock, _length(header))


async def receive_frame(reader: asyncio.StreamReader) -> bytes | None:
    """As `read_frame`, of a stream of asyncio."""
    try:
        return await reader.readexactly(_length(await reader.readexactly(LENGTH.size)))
    except asyncio.IncompleteReadError:
        return None


def _length(header: bytes) -> int:
    (length,) = LENGTH.unpack(header)
    if length > MOST_BYTES:
        raise OSError(f"a frame of {length} bytes")
    return int(length)


def _read(sock: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(count - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)
