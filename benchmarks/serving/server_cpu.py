"""The CPU cost of the HTTP side compared with the engine: CPU seconds of both processes per token, with streams.

    python -m benchmarks.serving.server_cpu [MODEL] [--streams 16] [--tokens 128] [--rounds 3]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.report import Spread, arguments, to_json
from benchmarks.serving.server import Server, cpu_s, served

MAX = 0.1  # maximum share of the engine's CPU time


async def read_stream(host: str, port: int, body: bytes) -> tuple[int, int]:
    """Returns the events and bytes of one stream."""
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


def measured(server: Server, streams: int, tokens: int, extra: dict[str, object]) -> tuple[float, float]:
    """Returns the CPU microseconds per token of the HTTP side and of the engine, in one round."""
    port = int(server.url.rpartition(":")[2])
    before, begun = (cpu_s(server.pid), cpu_s(server.engine)), time.monotonic()
    events = asyncio.run(load(port, streams, tokens, extra))
    count = streams * tokens
    http, engine = (1e6 * (cpu_s(pid) - b) / count for pid, b in zip((server.pid, server.engine), before, strict=True))
    print(f"{count} tokens in {events} events and {time.monotonic() - begun:.1f} s: HTTP side {http:.0f} us, engine "
          f"{engine:.0f} us of CPU per token,  {http / engine:.1%}", flush=True)
    return http, engine


def main() -> int:
    parser = arguments(__doc__ or "", rounds=3)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--extra", default="{}", help="further fields of the request, as JSON")
    parser.add_argument("--flags", default="", help="further flags of drut serve")
    args = parser.parse_args()
    extra = json.loads(args.extra)
    with served(args.model, "--engine", "process", "--threads", str(args.threads), *args.flags.split()) as server:
        asyncio.run(load(int(server.url.rpartition(":")[2]), args.streams, 8, extra))
        rounds = [measured(server, args.streams, args.tokens, extra) for _ in range(args.rounds)]
    share = Spread.of([http / engine for http, engine in rounds])
    if args.json:
        print(to_json(rounds=rounds, share=share))
    else:
        print(f"HTTP side over engine: {share.text(1, 100)} %")
    return int(share.median > MAX)


if __name__ == "__main__":
    sys.exit(main())
