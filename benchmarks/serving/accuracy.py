"""Whether the load client reports the truth about a server, and whether two runs are distinguishable.

    python -m benchmarks.serving.accuracy [--rounds N] [--rate R] [--duration S] [--json]

Three scripted servers: `a` and `again` with a TTFT of 100 ms and 10 ms between tokens, `slower` with 10 % more of both.
In each round `drut bench serve` measures each of them, one after the other. For `a` the figures are compared with the
script and with the server's own records of each request. `again` must lie within the noise floor of `a` that the run
prints, `slower` outside. A run that its client declares void is reported, and counts all the same.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Spread, table, to_json

from drut.bench.mock import MockServer, Served
from drut.bench.report.files import read
from drut.bench.result.schema import Result

TTFT_MS, ITL_MS, TOKENS, SLOWER = 100.0, 10.0, 32, 1.1
SERVERS = {"a": 1.0, "again": 1.0, "slower": SLOWER}
FIGURES = ("ttft_ms_p50", "itl_ms_p50", "tpot_ms_p50", "e2e_ms_p50")

Record = dict[str, Any]


def measure(server: MockServer, rate: float, duration: float, folder: Path) -> tuple[Result, list[Served]]:
    """Runs the client once against one server. Returns its result and the server's records."""
    server.reset()
    command = [sys.executable, "-m", "drut", "bench", "serve", "--url", server.url, "--model", "smollm2-135m-instruct",
               "--workload", f"synthetic:input=64,output={TOKENS}", "--rate", str(rate), "--duration", str(duration),
               "--warmup", "3", "--out", str(folder), "--quiet", "--no-metrics"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    return read(folder / "result.json"), server.requests()


def own_account(served: Sequence[Served]) -> dict[str, list[float]]:
    """Returns TTFT from arrival and TPOT, in ms, from the server's records."""
    answered = [s for s in served if s.outcome == "ok"]
    return {"ttft_sent_ms": [(s.first_s - s.arrived_s) * 1e3 for s in answered],
            "tpot_ms": [(s.last_s - s.first_s) / (s.tokens - 1) * 1e3 for s in answered]}


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def accuracy(result: Result, served: Sequence[Served]) -> Record:
    """Returns by figure the values of client, script and server; the server has no ITL."""
    own = own_account(served)
    script = {"ttft_sent_ms": TTFT_MS, "itl_ms": ITL_MS, "tpot_ms": ITL_MS}
    return {f"{name} p{p}": {"client": getattr(getattr(result.summary, name), f"p{p}"), "script": script[name],
                             "server": percentile(own[name], p) if name in own else None}
            for name in script for p in (50, 95)}


def apart(a: Result, b: Result) -> Record:
    """Returns by figure the relative difference and the noise floor of `a`."""
    found = {}
    for name in FIGURES:
        x, y = a.intervals.figures[name], b.intervals.figures[name]
        found[name] = {"difference": abs(float(y.value) / float(x.value) - 1), "floor": x.noise_floor}
    return found


def script(slow: float) -> Record:
    return {"ttft": {"kind": "constant", "ms": TTFT_MS * slow}, "itl": {"kind": "constant", "ms": ITL_MS * slow}}


def run(rounds: int, rate: float, duration: float) -> list[Record]:
    records = []
    with tempfile.TemporaryDirectory() as folder:
        servers = {name: MockServer(script(slow)) for name, slow in SERVERS.items()}
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            results = {}
            for name, server in servers.items():
                with server:
                    results[name], served = measure(server, rate, duration, Path(folder) / name)
                if name == "a":
                    figures = accuracy(results["a"], served)
            records.append({"accuracy": figures, "again": apart(results["a"], results["again"]),
                            "slower": apart(results["a"], results["slower"]),
                            "void": [name for name, r in results.items() if not r.validity.valid]})
    return records


def print_report(records: Sequence[Record]) -> None:
    def spread(name: str, *keys: str, scale: float = 1.0) -> str:
        values = [record[keys[0]][name][keys[1]] for record in records]
        return "" if None in values else Spread.of(values).text(2, scale)

    rows = [[name, *(spread(name, "accuracy", who) for who in ("client", "script", "server"))]
            for name in records[0]["accuracy"]]
    print(table(["", "client", "script", "server's own"], rows))
    for who in ("again", "slower"):
        rows = [[name, *(spread(name, who, what, scale=100) for what in ("difference", "floor"))] for name in FIGURES]
        print(table([f"`{who}` and `a`", "difference, %", "noise floor, %"], rows))
    void = [f"round {i}: {' '.join(r['void'])}" for i, r in enumerate(records, 1) if r["void"]]
    print("void:", ", ".join(void) or "none")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=20.0, help="requests per second")
    parser.add_argument("--duration", type=float, default=30.0, help="measured seconds of each run")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    records = run(args.rounds, args.rate, args.duration)
    if args.json:
        print(to_json(records))
        return 0
    print_report(records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
