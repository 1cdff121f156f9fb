"""What the HTTP side costs beside the engine: CPU seconds of both processes for each token, while streams run.

    python -m benchmarks.server_cpu smollm2-135m-instruct --streams 16 --tokens 128
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from benchmarks.serving import cpu_s, served

MOST = 0.1  # of the engine's CPU


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
    with served(args.model, "--engine", "process", *args.flags.split()) as server:
        engine, port = server.engine, int(server.url.rpartition(":")[2])
        asyncio.run(load(port, args.streams, 8, json.loads(args.extra)))
        before, begun = (cpu_s(server.pid), cpu_s(engine)), time.monotonic()
        events = asyncio.run(load(port, args.streams, args.tokens, json.loads(args.extra)))
        http, computing = cpu_s(server.pid) - before[0], cpu_s(engine) - before[1]
        seconds, tokens = time.monotonic() - begun, args.streams * args.tokens
    print(f"{tokens} tokens in {events} events and {seconds:.1f} s")
    print(f"HTTP side {1e6 * http / tokens:.0f} us, engine {1e6 * computing / tokens:.0f} us of CPU a token: "
          f"{100 * http / computing:.1f} %")
    return int(http > MOST * computing)


if __name__ == "__main__":
    sys.exit(main())
