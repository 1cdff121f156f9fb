"""What the HTTP side costs beside the engine: CPU seconds of both processes for each token, while streams run.

    python -m benchmarks.server_cpu smollm2-135m-instruct --streams 16 --tokens 128
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

MOST = 0.1  # of the engine's CPU
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def children(pid: int) -> list[int]:
    return [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]


async def read_stream(host: str, port: int, body: bytes) -> tuple[int, int]:
    """Events and bytes of one stream."""
    reader, writer = await asyncio.open_connection(host, port)
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    data = await reader.read()
    writer.close()
    assert b"[DONE]" in data, data[:500]
    return data.count(b"data: {"), len(data)


async def load(port: int, streams: int, tokens: int, extra: dict[str, object]) -> int:
    bodies = [json.dumps({"prompt": f"Story number {i}: once", "max_tokens": tokens, "stream": True, "ignore_eos": True,
                          "temperature": 1, "seed": i} | extra).encode() for i in range(streams)]
    return sum(events for events, _ in await asyncio.gather(*(read_stream("127.0.0.1", port, b) for b in bodies)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--extra", default="{}", help="further fields of the request, as JSON")
    parser.add_argument("--flags", default="", help="further flags of drut serve")
    args = parser.parse_args()
    flags = ["--port", "0", "--engine", "process", *args.flags.split()]
    command = [sys.executable, "-m", "drut", "serve", args.model, *flags]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        while "listening" not in (line := server.stderr.readline()):
            assert line
        port = int(line.split()[2].rstrip(",").rpartition(":")[2])
        while "ready after" not in server.stderr.readline():
            pass
        (engine,) = children(server.pid)
        asyncio.run(load(port, args.streams, 8, json.loads(args.extra)))
        before, begun = (cpu_s(server.pid), cpu_s(engine)), time.monotonic()
        events = asyncio.run(load(port, args.streams, args.tokens, json.loads(args.extra)))
        http, computing = cpu_s(server.pid) - before[0], cpu_s(engine) - before[1]
        seconds, tokens = time.monotonic() - begun, args.streams * args.tokens
        print(f"{tokens} tokens in {events} events and {seconds:.1f} s")
        print(f"HTTP side {1e6 * http / tokens:.0f} us, engine {1e6 * computing / tokens:.0f} us of CPU a token: "
              f"{100 * http / computing:.1f} %")
        return int(http > MOST * computing)
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    sys.exit(main())
