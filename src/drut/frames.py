"""Messages between processes of one machine: frames of bytes, each with its length in four bytes in front."""

from __future__ import annotations

import asyncio
import socket
import struct

LENGTH = struct.Struct("<I")
MAX_BYTES = 1 << 30  # maximum of a frame; a larger length is invalid


def frame(data: bytes) -> bytes:
    """Returns the frame of `data`."""
    return LENGTH.pack(len(data)) + data


def read_frame(sock: socket.socket) -> bytes | None:
    """Returns the data of one frame, None at the end of the stream. Raises OSError for a frame that is too long."""
    header = _read(sock, LENGTH.size)
    return None if header is None else _read(sock, _length(header))


async def receive_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Does what `read_frame` does, for a stream of asyncio."""
    try:
        return await reader.readexactly(_length(await reader.readexactly(LENGTH.size)))
    except asyncio.IncompleteReadError:
        return None


def _length(header: bytes) -> int:
    (length,) = LENGTH.unpack(header)
    if length > MAX_BYTES:
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
