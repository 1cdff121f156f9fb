"""Compares an engine in a thread of the server with one in a process of its own, by the gaps that streams see.

    python -m benchmarks.serving.isolation [MODEL.gguf] [--rounds N] [--threads N] [--json]

Over HTTP, with two servers that differ only in `--engine`, take turns, and alternate in going first: eight streams
decode while three prompts of 2,000 tokens arrive one after another. Gaps are between two events of a stream as this
process reads them, from the first prompt's arrival until the last has its first token. `HTTP side`: CPUs that a server
with a separate engine process used outside of that process meanwhile. Exit code 0.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from typing import Any

import msgspec
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, arguments, others, table, to_json
from benchmarks.serving.server import Server, cpu_s, served

STREAMS, PROMPT, LONG_PROMPT, ARRIVALS = 8, 32, 2000, 3
SETTLE, VOCAB = 24, 10_000  # events of each stream before the first arrival; ids of prompts are below
Record = dict[str, Any]


class Stream:
    """One request, and the times at which its events were read."""

    def __init__(self, server: Server, rng: random.Random, length: int, tokens: int) -> None:
        self._port = int(server.url.rpartition(":")[2])
        self._body = msgspec.json.encode({"prompt": [rng.randrange(VOCAB) for _ in range(length)], "stream": True,
                                          "max_tokens": tokens, "ignore_eos": True})
        self.sent = time.monotonic()
        self.times: list[float] = []
        self.first, self.settled = asyncio.Event(), asyncio.Event()
        self._task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(self._body)}\r\n\r\n")
            writer.write(head.encode() + self._body)
            while line := await reader.readline():
                if line.startswith(b"data: {"):
                    assert b'"choices"' in line, line
                    self.times.append(time.monotonic())
                    self.first.set()
                    if len(self.times) >= SETTLE:
                        self.settled.set()
        finally:
            writer.close()

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def play(server: Server, rng: random.Random, length: int, apart: bool) -> Record:
    """Returns seconds; `usual_itl_s` is from before the first arrival, gaps are from after it."""
    streams = [Stream(server, rng, PROMPT, LONG_PROMPT) for _ in range(STREAMS)]
    for stream in streams:
        await stream.settled.wait()
    usual = statistics.median(b - a for s in streams for a, b in zip(s.times[1:], s.times[2:], strict=False))
    begun, cpu = time.monotonic(), cpu_s(server.pid)
    ttfts = []
    for _ in range(ARRIVALS):
        arrival = Stream(server, rng, length, 2)
        await arrival.first.wait()
        ttfts.append(arrival.times[0] - arrival.sent)
        await arrival.end()
    ended, cpu = time.monotonic(), cpu_s(server.pid) - cpu
    gaps = [b - a for s in streams for a, b in zip(s.times, s.times[1:], strict=False) if begun < b <= ended]
    for stream in streams:
        await stream.end()
    centiles = statistics.quantiles(gaps, n=100)
    record = {"usual_itl_s": usual, "p50_itl_s": centiles[49], "p99_itl_s": centiles[98], "longest_itl_s": max(gaps),
              "ttft_s": statistics.median(ttfts), "tokens_per_s": len(gaps) / (ended - begun)}
    return record | ({"http_cpus": cpu / (ended - begun)} if apart else {})


async def measure(servers: dict[str, Server], rounds: int) -> list[Record]:
    """Returns one record for each round, with the results of each server. An additional first round is a warm-up."""
    records = []
    for number in range(rounds + 1):
        own = [servers["thread"].pid, servers["process"].pid, servers["process"].engine]
        load, record = OthersLoad(own), {}
        for name in sorted(servers, reverse=bool(number % 2)):
            length = LONG_PROMPT if number else 200
            record[name] = await play(servers[name], random.Random(number), length, name == "process")
        record["others_cpus"] = load.cpus()
        if number:
            records.append(record)
    return records


def print_report(records: list[Record], summary: dict[str, dict[str, Spread]]) -> None:
    milliseconds = ("usual_itl_s", "p50_itl_s", "p99_itl_s", "longest_itl_s")
    cells = [[name, *(row[key].text(1, 1000) for key in milliseconds), row["ttft_s"].text(2),
              row["tokens_per_s"].text(0)] for name, row in summary.items()]
    print(table(["engine in a", "usual ITL, ms", "ITL then, ms", "P99, ms", "longest, ms", "TTFT of prompts, s",
                 "events/s of streams"], cells))
    ratios = {key: Spread.of([r["process"][key] / r["thread"][key] for r in records])
              for key in ("p99_itl_s", "ttft_s", "tokens_per_s")}
    texts = (f"{key.removesuffix('_s')} {ratio.text(2)}" for key, ratio in ratios.items())
    print(f"process / thread: {'; '.join(texts)}")
    print(f"HTTP side with a separate engine process: {summary['process']['http_cpus'].text(2)} CPUs")
    print(others(records))


def main() -> int:
    args = arguments(__doc__ or "", rounds=5).parse_args()
    flags = ["--threads", str(args.threads), "--kv-cache-gb", "0.5"]
    with served(args.model, "--engine", "thread", *flags) as thread, \
            served(args.model, "--engine", "process", *flags) as process:
        records = asyncio.run(measure({"thread": thread, "process": process}, args.rounds))
    summary = {name: {key: Spread.of([r[name][key] for r in records]) for key in records[0][name]}
               for name in ("thread", "process")}
    if args.json:
        print(to_json(rounds=records, summary=summary))
    else:
        print_report(records, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
