"""The capacity of the scripted server: requests and streamed tokens per second of its CPU time, and its lateness.

    python -m benchmarks.serving.mock

The reader is a simple one in a process of its own. On a busy machine it may be the bottleneck; therefore work is
reported per CPU second of the server and not per second of wall-clock time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from benchmarks.report import Spread, table, to_json

from drut.bench.mock import MockServer
from drut.machine import cpu_model, usable_cpus


@dataclass(frozen=True)
class Case:
    """`connections` that each send `requests` requests for `tokens` tokens."""

    name: str
    connections: int
    requests: int
    tokens: int
    stream: bool
    script: dict[str, Any]


def paced(streams: int, gap_ms: float) -> Case:
    """Streams whose first tokens are spread over a tenth of a second."""
    script = {"ttft": {"kind": "uniform", "low_ms": 1, "high_ms": 100}, "itl": {"kind": "constant", "ms": gap_ms}}
    return Case(name=f"{streams} streams, a token each {gap_ms:g} ms", connections=streams, requests=1, tokens=256,
                stream=True, script=script)


CASES = (Case(name="whole answers at once", connections=16, requests=300, tokens=16, stream=False, script={}), Case(
    name="streams at once", connections=16, requests=100, tokens=128, stream=True, script={}),
         paced(50, 10), paced(200, 10), paced(400, 5))


async def ask(host: str, port: int, case: Case) -> None:
    """Sends all requests of one connection."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    body = json.dumps({"prompt": "a b c", "max_tokens": case.tokens, "stream": case.stream}).encode()
    for _ in range(case.requests):
        writer.write(b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        if case.stream:
            tail = b""
            while tail != b"0\r\n\r\n":
                tail = (tail + await reader.read(1 << 18))[-5:]
        else:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    writer.close()


def measure(case: Case) -> dict[str, Any]:
    """Runs one round of a case."""
    with MockServer(case.script) as server:
        host, port = server.url.removeprefix("http://").split(":")
        process = psutil.Process(server.pid)
        before = process.cpu_times()

        async def all_at_once() -> None:
            await asyncio.gather(*(ask(host, int(port), case) for _ in range(case.connections)))

        asyncio.run(all_at_once())
        after = process.cpu_times()
        served = server.requests()
    cpu_s = after.user + after.system - before.user - before.system
    late = [one.first_s - one.due_first_s for one in served]
    return {"case": case.name, "requests_per_cpu_s": len(served) / cpu_s,
            "tokens_per_cpu_s": sum(one.tokens for one in served) / cpu_s,
            "late_p50_ms": float(np.percentile(late, 50)) * 1e3, "late_p99_ms": float(np.percentile(late, 99)) * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (default: 5)")
    parser.add_argument("--json", action="store_true", help="print every round and the summary as JSON")
    args = parser.parse_args()
    rounds = [measure(case) for _ in range(args.rounds) for case in CASES]
    columns = ("requests_per_cpu_s", "tokens_per_cpu_s", "late_p50_ms", "late_p99_ms")
    summary = {case.name: {key: Spread.of([one[key] for one in rounds if one["case"] == case.name]) for key in columns}
               for case in CASES}
    machine = f"{cpu_model()}, {len(usable_cpus())} CPUs; Python {platform.python_version()}"
    if args.json:
        print(to_json(machine=machine, summary=summary, rounds=rounds))
        return
    show: dict[str, Callable[[Spread], str]] = {
        "requests_per_cpu_s": lambda s: s.text(0), "tokens_per_cpu_s": lambda s: s.text(0),
        "late_p50_ms": lambda s: s.text(2), "late_p99_ms": lambda s: s.text(2)}
    print(f"{machine}; medians of {args.rounds} rounds (lowest .. highest); late: the first token, as it is written")
    print(table(["", "requests/CPU s", "tokens/CPU s", "late P50 ms", "late P99 ms"],
                [[name, *(show[key](spreads[key]) for key in columns)] for name, spreads in summary.items()]))


if __name__ == "__main__":
    main()
