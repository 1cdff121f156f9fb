"""Whether the engine belongs in a thread of the server or in a process of its own: what streams feel of it.

    python benchmarks/isolation.py [MODEL.gguf] [--rounds N] [--threads N] [--json]

Eight requests decode while three prompts of 2,000 tokens arrive one after another, through the server's admission to an
AsyncEngine. The side that asks does what an HTTP server does with each chunk: it makes JSON of it and writes that to a
socket, which another thread of it reads. An engine in a thread and one in a process take turns, and at going first.
Gaps are between two tokens of a stream in the asker's hands, from the first prompt's arrival until the last has its
first token. `asker`: CPU seconds of the asking side's event loop over those gaps' time. Exit code 0.
"""

from __future__ import annotations

import asyncio
import random
import socket
import statistics
import sys
import threading
import time
from typing import Any

import msgspec
from machine_load import OthersLoad
from report import Spread, arguments, others, table

from drut import AsyncEngine, SamplingParams
from drut.server.admission import Admission, Ask

STREAMS, PROMPT, LONG_PROMPT, ARRIVALS = 8, 32, 2000, 3
SETTLE, VOCAB = 24, 10_000  # tokens of each stream before the first arrival; ids of prompts are below
Record = dict[str, Any]


class Reader:
    """One request and the moments at which its tokens came."""

    def __init__(self, admission: Admission, rng: random.Random, length: int, tokens: int) -> None:
        prompt = [rng.randrange(VOCAB) for _ in range(length)]
        params = SamplingParams(max_tokens=tokens, ignore_eos=True)
        self.ticket = admission.submit(Ask(prompt, params))
        self.times: list[float] = []
        self.first = asyncio.Event()
        self.settled = asyncio.Event()
        self._out, self._in = socket.socketpair()
        threading.Thread(target=self._swallow, daemon=True).start()
        self.task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        async for chunk in self.ticket:
            delta = {"index": chunk.index, "delta": {"content": chunk.text}, "finish_reason": None}
            event = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [delta]}
            self._out.send(b"data: " + msgspec.json.encode(event) + b"\n\n")
            self.times += [time.monotonic()] * len(chunk.token_ids)
            self.first.set()
            if len(self.times) >= SETTLE:
                self.settled.set()
        self._out.close()

    def _swallow(self) -> None:
        while self._in.recv(1 << 16):
            pass
        self._in.close()

    async def end(self) -> None:
        self.ticket.cancel()
        await self.task


async def play(engine: AsyncEngine, rng: random.Random, length: int) -> Record:
    """Seconds; `itl` of before the first arrival, gaps of after it."""
    admission = Admission(engine)
    streams = [Reader(admission, rng, PROMPT, LONG_PROMPT) for _ in range(STREAMS)]
    for stream in streams:
        await stream.settled.wait()
    usual = statistics.median(b - a for s in streams for a, b in zip(s.times[1:], s.times[2:], strict=False))
    begun, cpu = time.monotonic(), time.thread_time()
    ttfts = []
    for _ in range(ARRIVALS):
        arrival = Reader(admission, rng, length, 2)
        await arrival.first.wait()
        ttfts.append(arrival.times[0] - arrival.ticket.arrived)
    ended, cpu = time.monotonic(), time.thread_time() - cpu
    gaps = [b - a for s in streams for a, b in zip(s.times, s.times[1:], strict=False) if begun < b <= ended]
    for stream in streams:
        await stream.end()
    centiles = statistics.quantiles(gaps, n=100)
    return {"usual_itl_s": usual, "p50_itl_s": centiles[49], "p99_itl_s": centiles[98], "longest_itl_s": max(gaps),
            "ttft_s": statistics.median(ttfts), "tokens_per_s": len(gaps) / (ended - begun),
            "asker": cpu / (ended - begun)}


async def measure(engines: dict[str, AsyncEngine], rounds: int) -> list[Record]:
    """One record a round: what each engine did. A round more, the first, warms up."""
    records = []
    for number in range(rounds + 1):
        load, record = OthersLoad([]), {}
        for name in sorted(engines, reverse=bool(number % 2)):
            record[name] = await play(engines[name], random.Random(number), LONG_PROMPT if number else 200)
        record["others_cpus"] = load.cpus()
        if number:
            records.append(record)
    return records


def print_report(engine: str, records: list[Record], rows: list[Record]) -> None:
    print(engine)
    milliseconds = ("usual_itl_s", "p50_itl_s", "p99_itl_s", "longest_itl_s")
    cells = [[row["engine"], *(row[key].text(1, 1000) for key in milliseconds), row["ttft_s"].text(2),
              row["tokens_per_s"].text(0), row["asker"].text(2)] for row in rows]
    print(table(["engine in a", "usual ITL, ms", "ITL then, ms", "P99, ms", "longest, ms", "TTFT of prompts, s",
                 "tokens/s of streams", "asker, CPUs"], cells))
    print(others(records))


async def run(args: Any) -> None:
    settings = {"threads": args.threads, "kv_cache_gb": 0.5}
    async with AsyncEngine(args.model, **settings) as thread, \
            AsyncEngine(args.model, process=True, **settings) as process:
        engines = {"thread": thread, "process": process}
        records = await measure(engines, args.rounds)
        rows = [{"engine": name, **{key: Spread.of([r[name][key] for r in records]) for key in records[0][name]}}
                for name in engines]
        if args.json:
            print(msgspec.json.encode({"engine": thread.ready.description, "records": records}).decode())
        else:
            print_report(thread.ready.description, records, rows)


def main() -> int:
    asyncio.run(run(arguments(__doc__, rounds=5).parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
