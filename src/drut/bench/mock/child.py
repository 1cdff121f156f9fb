"""The process of a `MockServer`: serves the script in the first line of stdin, until stdin ends."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from drut.bench.mock.script import Script
from drut.bench.mock.server import run, serve


async def _serve(script: Script, host: str, port: int, stop: asyncio.Event) -> None:
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)  # readable when the parent has ended
    await serve(script, host, port, lambda url: print(url, flush=True), stop)


def main(host: str, port: int) -> None:
    """Serves at an address, and prints the URL."""
    script = msgspec.json.decode(sys.stdin.readline(), type=Script)
    run(lambda stop: _serve(script, host, port, stop))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
