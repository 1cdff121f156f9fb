"""Whether `drut bench search` finds the true capacity of a server over HTTP.

    python -m benchmarks.serving.search_truth [--searches N] [--budget 10m] [--servers NAME ...] [--out DIR] [--json]

The scripted servers are those of `tests/bench/search/test_search.py`, each in a process of its own; their true
figures come from long simulations (`tests/bench/search/queues.py`). Passes (exit code 0) if the saturation, knee and
limit rate of each search are within 5 % of them. With --out, finished searches are stored there with all their files,
and not repeated.

In addition to the errors it shows possible causes: `void`, runs that the client declares void; `over`, by how much the
mean E2E of one request at a time is above the script, ms; `late`, how late the server sent the first tokens, and
`stalled`, the share of them that was later than 5 ms; `others`, the CPUs that other processes took.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import psutil
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, table, to_json
from tests.bench.search.queues import Server, constant

from drut.bench.mock import MockServer, Served
from drut.bench.search.files import read
from drut.bench.search.schema import Search, SearchAnswer
from drut.machine import cpu_model, usable_cpus

MAX_ERROR = 0.05
ATTAIN = 0.95
STALL_MS = 5.0
SIMULATED = 1_500_000  # requests of a simulation of the truth
WHAT = ("saturation", "knee", "slo_rate")
SEED_STEP = 1_000_003  # distance of seeds, larger than what one search adds to its seed


@dataclass(frozen=True)
class Case:
    """A server with constant times, and the limit of its TTFT; milliseconds."""

    slots: int
    first_ms: float
    rest_ms: float
    limit_ms: float

    def script(self) -> dict[str, object]:
        """Returns a script with two tokens per answer."""
        return {"slots": self.slots, "output_tokens": 2, "ttft": {"kind": "constant", "ms": self.first_ms},
                "itl": {"kind": "constant", "ms": self.rest_ms}}

    def truth(self) -> dict[str, float]:
        """Returns the true figures by name, per second."""
        queue = Server(self.slots, constant(self.first_ms / 1e3), constant(self.rest_ms / 1e3), constant=True)
        return {"saturation": queue.saturation(), "knee": queue.knee(),
                "slo_rate": queue.slo_rate(self.limit_ms / 1e3, ATTAIN, SIMULATED)}

    def __str__(self) -> str:
        return (f"slots {self.slots}, {self.first_ms:g} + {self.rest_ms:g} ms, {ATTAIN:.0%} of TTFT in "
                f"{self.limit_ms:g} ms")


CASES = {"eight": Case(8, 10, 40, 30), "one": Case(1, 5, 5, 55)}


class Record(msgspec.Struct, frozen=True):
    """The result of one search. `over_ms` is None if no run with one user was valid."""

    server: str
    seed: int
    saturation: SearchAnswer
    knee: SearchAnswer
    slo_rate: SearchAnswer
    runs: int
    void: int
    ended: str
    over_ms: float | None
    late_p50_ms: float
    late_p99_ms: float
    stalled: float
    others_cpus: float
    search_cpus: float
    mock_cpus: float

    def error(self, name: str, truth: dict[str, float]) -> float | None:
        """Returns the relative error; None if nothing was found."""
        value = getattr(self, name).value
        return None if value is None else value / truth[name] - 1

    def passes(self, truth: dict[str, float]) -> bool:
        """Returns whether every figure was found with a small enough error."""
        errors = [self.error(name, truth) for name in WHAT]
        return all(error is not None and abs(error) <= MAX_ERROR for error in errors)


def search(name: str, seed: int, budget: str, folder: Path) -> Record:
    """Runs one search of a server started for it. Its progress goes to stderr."""
    case = CASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    work = folder / "work.jsonl"
    work.write_text('{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}\n')
    with MockServer(case.script()) as server:
        command = [sys.executable, "-m", "drut", "bench", "search", "--url", server.url, "--model", "mock",
                   "--workload", f"jsonl:path={work}", "--slo", f"ttft={case.limit_ms:g}", "--attain", str(ATTAIN),
                   "--budget", budget, "--seed", str(SEED_STEP * seed), "--no-metrics",
                   "--server-pid", str(server.pid), "--out", str(folder), "--json"]
        mock = psutil.Process(server.pid)
        load, began, before = OthersLoad([server.pid]), time.perf_counter(), cpu_s(mock)
        own = children_s()
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        own, mock_s, wall = children_s() - own, cpu_s(mock) - before, time.perf_counter() - began
        others = max(load.cpus() - own / wall, 0.0)
        if done.returncode not in (0, 3):
            raise SystemExit(f"the search ended with {done.returncode}")
        served = server.requests()
    return record(name, seed, read(folder / "search.json"), served, (others, own / wall, mock_s / wall))


def children_s() -> float:
    """Returns the CPU seconds of this process's ended children and of theirs."""
    times = os.times()
    return times.children_user + times.children_system


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def record(name: str, seed: int, found: Search, served: Sequence[Served], cpus: tuple[float, float, float]) -> Record:
    """Builds a record. `cpus`: of others, the search and the server."""
    case = CASES[name]
    alone = [p.e2e_ms_mean for p in found.points if p.concurrency == 1 and p.valid and p.e2e_ms_mean is not None]
    late = np.array([one.first_s - one.due_first_s for one in served if one.outcome == "ok"]) * 1e3
    return Record(
        name, seed, found.saturation, found.knee, found.slo_rate, len(found.points),
        sum(not p.valid for p in found.points), found.ended,
        alone[0] - case.first_ms - case.rest_ms if alone else None,
        float(np.percentile(late, 50)), float(np.percentile(late, 99)), float((late > STALL_MS).mean()), *cpus)


def kept(name: str, seed: int, budget: str, out: Path) -> Record:
    """Returns the stored search of an earlier call, or runs and stores it."""
    path = out / f"{name}-{budget}-{seed}" / "record.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Record)
    made = search(name, seed, budget, path.parent)
    path.write_bytes(msgspec.json.encode(made))
    return made


def cells(one: Record, truth: dict[str, float]) -> list[str]:
    """Returns a row of the table."""
    found = []
    for name in WHAT:
        answer, error = getattr(one, name), one.error(name, truth)
        bounds = " .. ".join("?" if x is None else f"{x:.4g}" for x in (answer.low, answer.high))
        found += ["?" if error is None else f"{error:+.1%}", bounds]
    over = "?" if one.over_ms is None else f"{one.over_ms:.2f}"
    return [f"{one.server} {one.seed}", *found, f"{one.void} of {one.runs}", over,
            f"{one.late_p50_ms:.2f} / {one.late_p99_ms:.2f}", f"{one.stalled:.2%}", f"{one.others_cpus:.2f}",
            f"{one.search_cpus:.2f}", f"{one.mock_cpus:.2f}"]


HEADS = ("search", "saturation", "between", "knee", "between", "SLO rate", "between", "void", "over",
         "late p50 / p99", "stalled", "others", "search", "mock")


def print_report(records: Sequence[Record], truths: dict[str, dict[str, float]]) -> None:
    for name, truth in truths.items():
        figures = ", ".join(f"{what.replace('_', ' ')} {truth[what]:.1f}" for what in WHAT)
        print(f"{name}: {CASES[name]}; truth, requests/s: {figures}")
    print("errors against the truth; the bounds of the search; ms; CPUs")
    print(table(HEADS, [cells(one, truths[one.server]) for one in records]))
    for name, truth in truths.items():
        mine = [one for one in records if one.server == name]
        for what in WHAT:
            errors = [abs(error) for one in mine if (error := one.error(what, truth)) is not None]
            middle = f"median error {Spread.of(errors).text(2, 100)} %" if errors else "none found"
            near = sum(error <= MAX_ERROR for error in errors)
            print(f"{name}, {what.replace('_', ' ')}: {middle}; {near} of {len(mine)} within {MAX_ERROR:.0%}")
    for one in records:
        if one.ended:
            print(f"{one.server} {one.seed} ended early: {one.ended}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=3, help="of each server, with seeds 0, 1, ... (default: 3)")
    parser.add_argument("--budget", default="10m", help="of one search (default: 10m)")
    parser.add_argument("--servers", nargs="+", choices=CASES, default=list(CASES), help="(default: all)")
    parser.add_argument("--out", type=Path, help="folder for the searches")
    parser.add_argument("--json", action="store_true", help="print the truth and all records as JSON")
    args = parser.parse_args()
    if args.searches < 1:
        parser.error(f"--searches must be at least 1, not {args.searches}")
    print(f"{len(args.servers)} x {args.searches} searches of at most {args.budget} each, after the simulations",
          file=sys.stderr)
    truths = {name: CASES[name].truth() for name in args.servers}
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.searches):  # servers take turns, so that a busy hour does not affect only one
            for name in args.servers:
                print(f"{name}, seed {seed}", file=sys.stderr)
                records.append(kept(name, seed, args.budget, args.out or Path(folder)))
                print(table(HEADS, [cells(records[-1], truths[name])]), file=sys.stderr)
    if args.json:
        print(to_json(truth=truths, records=[msgspec.to_builtins(one) for one in records]))
    else:
        print(f"{cpu_model()}, {len(usable_cpus())} CPUs")
        print_report(records, truths)
    return 0 if all(one.passes(truths[one.server]) for one in records) else 1


if __name__ == "__main__":
    sys.exit(main())
