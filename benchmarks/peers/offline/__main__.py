"""Compares Drut with the engines that `make peers` built: prefill, decode at batch 1, 8 and 32, and time to load.

    python -m benchmarks.peers.offline [--models NAME ...] [--peers NAME ...] [--columns NAME ...] [--rounds N]
                                       [--quick]

Each engine has a process of its own, loaded once and suspended during the turns of others. A new measurement of a model
and column replaces the earlier one; docs/benchmarks.md is written from all results.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time

from benchmarks.peers.models import MODELS, VOCAB, Model
from benchmarks.peers.offline import condensed, document
from benchmarks.peers.offline.columns import COLUMNS
from benchmarks.peers.offline.contestants import NAMES, TITLES, contestants
from benchmarks.peers.offline.machine_roof import MachineRoof
from benchmarks.peers.offline.measure import Match, run, show
from benchmarks.peers.offline.results import company, machine, save

from drut.machine import usable_cpus

ROUNDS, THREADS = 5, 2


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.offline", description=__doc__.splitlines()[0])

    def several(flag: str, known: list[str], what: str) -> None:
        parser.add_argument(flag, nargs="+", choices=known, default=known, metavar="NAME",
                            help=f"{what} (default: all of {', '.join(known)})")

    several("--models", list(MODELS), "which models")
    several("--peers", list(NAMES), "engines, including Drut")
    parser.add_argument("--columns", nargs="+", choices=list(COLUMNS), metavar="NAME",
                        help=f"columns to measure, of {', '.join(COLUMNS)} (default: by the model)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds (default: {ROUNDS})")
    parser.add_argument("--threads", type=int, default=THREADS, help=f"threads, each with a CPU (default: {THREADS})")
    parser.add_argument("--quick", action="store_true",
                        help="one short round to check that everything works; results are not stored")
    return parser


def compare(model: Model, args: argparse.Namespace, cpus: list[int]) -> dict[str, str]:
    """Measures `model` and stores the results. Returns the engines that were left out, with reasons."""
    began = time.monotonic()
    show(f"{model.title}")
    names = args.columns or model.columns
    columns = [COLUMNS[name].quick() if args.quick else COLUMNS[name] for name in names]
    found, missing = contestants(model, args.peers, cpus)
    for name, why in missing.items():
        show(f"  {name}: LEFT OUT: {why}")
    match, roof = Match(found, VOCAB, cpus), MachineRoof(len(cpus))
    try:
        match.start(columns)
        results = run(match, columns, 1 if args.quick else args.rounds, roof)
    finally:
        match.close()
    missing |= match.missing
    shared = {"model": model.name, "when": time.strftime("%Y-%m-%d %H:%M"),
              "engines": match.engines, "missing": missing, "roof": roof.to_json(), "machine": machine(cpus),
              "command": shlex.join(["python", "-m", "benchmarks.peers.offline", *sys.argv[1:]])}
    for result in results:
        result |= shared
        if not args.quick:
            save(result)
    if args.quick:
        print(document.document(condensed.condense({(model.name, company(results[0])): results})))
    show(f"{model.title}: {time.monotonic() - began:.0f} s")
    return missing


def main() -> int:
    args = arguments().parse_args()
    cpus = usable_cpus()[: args.threads]
    if len(cpus) < args.threads:
        raise SystemExit(f"{args.threads} threads need as many CPUs; this process may use {len(cpus)}")
    out = {name: compare(MODELS[name], args, cpus) for name in args.models}
    if not args.quick:
        show(document.write())
    for name, missing in out.items():
        for engine, why in missing.items():
            show(f"{name}: without {TITLES[engine]}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
