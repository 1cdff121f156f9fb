"""Each kernel as a share of the roof: matrices by encoding, shape and rows, attention by context.

    python -m benchmarks.kernels.micro [--kinds Q4_0 ...] [--only TEXT ...] [--rounds N] [--isa NAME] [--save FILE]
                                       [--base CHECKOUT | --against FILE] [--threshold 0.05]

With --base another built checkout takes turns with this one, kernel by kernel, and ratios are taken within rounds.
--against compares with a file that --save wrote minutes ago. Exit code 1 if a kernel's share of the roof fell by more
than the threshold; absolute figures decide nothing, because they depend on the machine as much as on the kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.peers.build import ROOT
from benchmarks.peers.offline.machine_roof import MachineRoof
from benchmarks.peers.process import EngineError, EngineProcess
from benchmarks.report import table

from drut.bench.compare.order import order
from drut.formats.encoding import ENCODINGS, encoding
from drut.machine import usable_cpus
from drut.observe.ledger import Macs, Peaks

KINDS = ("Q4_0", "Q4_1", "Q8_0", "W8A8", "Q4_K", "Q6_K", "BF16")
SHAPES = ((576, 576), (1536, 576), (576, 1536), (2048, 2048), (8192, 2048), (2048, 8192))
ROWS = (1, 4, 8, 16, 32, 128, 512)
HEADS = {"135M": (9, 3, 64), "1B": (32, 8, 64)}
KV_DTYPES = ("bf16", "int8")
CONTEXTS, ATTENTION_ROWS = (512, 4096, 8192), (1, 128)
HERE, THERE = "here", "there"
TURN_S = 120.0

Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One kernel with its sizes, as a request to `micro_kernels.py`."""

    name: str
    do: str
    arguments: dict[str, Any]


def cases(kinds: Sequence[str], only: Sequence[str]) -> list[Case]:
    """Returns the cases whose name contains one of `only`, or all."""
    found = []
    for kind in kinds:
        for n, k in SHAPES:
            if k % encoding(kind).block:
                continue
            for rows in ROWS:
                sizes = {"kind": kind, "n": n, "k": k, "rows": rows}
                found.append(Case(f"gemm {kind} {n}x{k} rows {rows}", "gemm", sizes))
    for (model, (heads, kv_heads, head_dim)), kv_dtype in product(HEADS.items(), KV_DTYPES):
        for context, rows in product(CONTEXTS, ATTENTION_ROWS):
            sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "kv_dtype": kv_dtype,
                     "context": context, "rows": rows}
            found.append(Case(f"attention {model} {kv_dtype} context {context} rows {rows}", "attention", sizes))
    return [case for case in found if not only or any(text in case.name for text in only)]


@dataclass
class Measured:
    """The seconds of a case in each round, of this checkout and of the other one if there is one."""

    cost: Answer
    seconds: dict[str, list[float]] = field(default_factory=lambda: {HERE: [], THERE: []})

    def share(self, best: Peaks) -> float:
        """Returns the share of the roof of this checkout, in the median round."""
        return sum(self.floors(best).values()) / statistics.median(self.seconds[HERE])

    def floors(self, best: Peaks) -> dict[str, float]:
        """Returns the roofline time by the roof that it is at."""
        return best.floor_by_roof(self.cost["bytes"], Macs(*self.cost["macs"]), self.cost["working_set"])

    def ratios(self) -> list[float]:
        """Returns the other checkout's seconds over this one's, in each round; empty without another checkout."""
        return [there / here for here, there in zip(self.seconds[HERE], self.seconds[THERE], strict=False)]


def fallen(ratios: Mapping[str, Sequence[float]], threshold: float) -> list[str]:
    """Returns kernels with a median ratio below 1 - `threshold`, the worst first, unless any round found them as
    fast."""
    slower = {name: statistics.median(each) for name, each in ratios.items() if max(each) < 1}
    return sorted((name for name, ratio in slower.items() if ratio < 1 - threshold), key=lambda name: slower[name])


def compare(measured: Mapping[str, Measured], shares: Mapping[str, float],
            base: Mapping[str, float] | None) -> dict[str, list[float]]:
    """Returns new over old, by kernel: with a base file's shares, or with the other checkout's speed in each round."""
    if base is not None:
        return {name: [share / base[name]] for name, share in shares.items() if name in base}
    return {name: m.ratios() for name, m in measured.items() if m.ratios()}


def start(checkout: Path, name: str, cpus: list[int], isa: str) -> EngineProcess:
    """Starts a worker for the kernels of a checkout, with the interpreter of its .venv if there is one."""
    log = ROOT / "build" / f"micro-{name}.log"
    log.parent.mkdir(exist_ok=True)
    own = checkout / ".venv" / "bin" / "python"
    python = own if name == THERE and own.exists() else Path(sys.executable)
    path = os.pathsep.join(filter(None, [str(checkout / "src"), os.environ.get("PYTHONPATH", "")]))
    process = EngineProcess(python=python, module="benchmarks.kernels.micro_kernels", log=log, cwd=ROOT,
                            env={"PYTHONPATH": path}, cpus=cpus)
    source = process.ask("load", TURN_S, threads=len(cpus), isa=isa)["source"]
    if not Path(source).resolve().is_relative_to(checkout.resolve()):
        process.close()
        raise SystemExit(f"{checkout}: its drut is not what ran, but {source} (make setup there)")
    process.pause()
    return process


def measure(processes: Mapping[str, EngineProcess], todo: Sequence[Case], rounds: int, seconds: float,
            roof: MachineRoof) -> dict[str, Measured]:
    """Runs all rounds; the checkouts alternate in going first."""
    measured: dict[str, Measured] = {}
    for number in range(rounds):
        roof.measure()
        for index, case in enumerate(todo):
            answers = {}
            for name in order(list(processes), number + index):
                process = processes[name]
                process.resume()
                answers[name] = process.ask(case.do, TURN_S, **case.arguments, seconds=seconds)
                process.pause()
            of = measured.setdefault(case.name, Measured(answers[HERE]))
            for name, answer in answers.items():
                of.seconds[name].append(answer["seconds"])
            if index % 50 == 0:
                print(f"round {number + 1} of {rounds}, kernel {index + 1} of {len(todo)}", file=sys.stderr)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.micro", description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=[*ENCODINGS, "W8A8"], metavar="KIND",
                        help=f"encodings (default: {', '.join(KINDS)})")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT",
                        help="kernels whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--seconds", type=float, default=0.05,
                        help="seconds of each kernel in each round (default: 0.05)")
    parser.add_argument("--isa", default="auto", help="instruction set (default: the best the CPU has)")
    parser.add_argument("--save", type=Path, help="write the shares to this file")
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--against", type=Path, help="a file that --save wrote a few minutes ago")
    against.add_argument("--base", type=Path, help="another checkout, built, that takes turns with this one")
    parser.add_argument("--threshold", type=float, default=0.05,
                        help="maximum share of speed that may be lost (default: 0.05)")
    args = parser.parse_args()
    cpus = usable_cpus()
    todo, roof = cases(args.kinds, args.only), MachineRoof(len(cpus))
    checkouts = {HERE: ROOT} | ({THERE: args.base.resolve()} if args.base else {})
    processes: dict[str, EngineProcess] = {}
    try:
        for name, checkout in checkouts.items():
            processes[name] = start(checkout, name, cpus, args.isa)
        measured = measure(processes, todo, args.rounds, args.seconds, roof)
    except EngineError as error:
        raise SystemExit(f"a kernel worker {error}") from None
    finally:
        for process in processes.values():
            process.close()
    best = roof.peaks(args.isa == "avx2")
    shares = {name: m.share(best) for name, m in measured.items()}
    base = json.loads(args.against.read_text())["shares"] if args.against else None
    compared = compare(measured, shares, base)
    rows = [[name, f"{1e6 * statistics.median(m.seconds[HERE]):.0f}", f"{100 * shares[name]:.0f}",
             "+".join(m.floors(best)),
             f"{statistics.median(compared[name]):.2f}" if name in compared else ""] for name, m in measured.items()]
    print(table(["", "us", "% of roof", "roof", "new/old"], rows))
    if args.save:
        args.save.write_text(json.dumps({"roof": roof.to_json(), "shares": shares}, indent=1))
    lost = fallen(compared, args.threshold)
    for name in lost:
        print(f"SLOWER: {name}: {statistics.median(compared[name]):.2f} of what it was")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
