"""Text of standard input."""

from __future__ import annotations

import sys

from drut.errors import RequestError

MAX_BYTES = 16 << 20


def read_text(name: str) -> str:
    """Returns standard input without its last line end. Raises RequestError, with `name`, if it is not UTF-8 or too
    long."""
    raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise RequestError(f"{name} is longer than {MAX_BYTES} bytes")
    try:
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not UTF-8 text (byte {error.start})") from None
