"""Compares two settings or two checkouts in alternating turns, thousands of times: is the new one slower, and by how
much?

    python -m benchmarks.ab --work step@1 --new kv_dtype=int8
    python -m benchmarks.ab --work prefill@512 --base-tree ../before --at-least 0.98

Each side is a process of its own on the same CPUs; one waits while the other runs. The figure is the speed of the new
side over the base's, with a 95 % interval. Exit code 1 if the lower bound of the interval is below --at-least.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ab.pairs import BASE, NEW, Ask, Launch, run_launch, summary
from benchmarks.ab.works import parse
from benchmarks.peers.environment import ROOT
from benchmarks.peers.process import EngineError, EngineProcess

from drut.config import EngineConfig, parse_value
from drut.machine import usable_cpus

REST_S = 0.001  # idle worker threads spin for up to 0.4 ms before they sleep
TURN_S = 300.0
PAIRS = {"step": 400, "decode": 60, "prefill": 60, "serve": 20}  # of each launch, by kind of work


def setting(text: str) -> tuple[str, Any]:
    """Parses NAME=VALUE as a flag of drut would."""
    name, found, value = text.partition("=")
    kinds = {f.name: f.metadata["type"] for f in dataclasses.fields(EngineConfig)}
    if not found or name not in kinds:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE of a setting, such as threads=1")
    return name, parse_value(name, value, kinds[name])


def work(text: str) -> str:
    try:
        parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ab", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct", help="known name or file (default: %(default)s)")
    parser.add_argument("--work", type=work, nargs="+", default=["step@1"], metavar="KIND@N",
                        help="step@BATCH, decode@BATCH, prefill@TOKENS or serve@USERS (default: step@1)")
    for side in (BASE, NEW):
        parser.add_argument(f"--{side}", type=setting, nargs="+", default=[], metavar="NAME=VALUE",
                            help=f"settings of the {side} side")
        parser.add_argument(f"--{side}-tree", type=Path, default=ROOT, metavar="DIR",
                            help="its checkout, set up with `make setup` (default: this one)")
    parser.add_argument("--launches", type=int, default=10, help="fresh processes of both sides (default: 10)")
    parser.add_argument("--pairs", type=int, help="pairs of turns in each launch (default: by the kind of work)")
    parser.add_argument("--at-least", type=float, metavar="RATIO", help="exit code 1 if the lower bound is below this")
    parser.add_argument("--slow-new", type=float, default=0.0, metavar="SHARE",
                        help="busy time added to each turn of the new side, to check that it is detected")
    parser.add_argument("--json", action="store_true", help="one JSON object per work, with all launches")
    args = parser.parse_args(argv)
    if args.launches < 2:
        parser.error("--launches: an interval needs at least two")
    return args


@contextlib.contextmanager
def started(args: argparse.Namespace, name: str, text: str) -> Iterator[Ask]:
    """Starts and loads a side's process."""
    tree = vars(args)[f"{name}_tree"].resolve()
    own = tree / ".venv" / "bin" / "python"
    log = ROOT / "build" / f"ab-{name}.log"
    log.parent.mkdir(exist_ok=True)
    path = os.pathsep.join(filter(None, [str(tree / "src"), os.environ.get("PYTHONPATH", "")]))
    process = EngineProcess(python=own if own.exists() else Path(sys.executable), module="benchmarks.ab.side", log=log,
                            cwd=ROOT, env={"PYTHONPATH": path}, cpus=usable_cpus())
    try:
        loaded = process.ask("load", TURN_S, work=text, model=args.model, settings=dict(vars(args)[name]),
                             slow=args.slow_new if name == NEW else 0.0)
        if not Path(loaded["source"]).resolve().is_relative_to(tree):
            raise SystemExit(f"{tree}: drut was imported from {loaded['source']} (run make setup there)")

        def turn(number: int) -> tuple[float, str]:
            answer = process.ask("turn", TURN_S, number=number)
            return answer["seconds"], answer["digest"]

        yield turn
    finally:
        process.close()


def measure(args: argparse.Namespace, text: str) -> list[Launch]:
    """Runs all launches of one work."""
    pairs = args.pairs or PAIRS[parse(text)[0]]
    launches = []
    for number in range(args.launches):
        with started(args, BASE, text) as base, started(args, NEW, text) as new:
            launches.append(run_launch({BASE: base, NEW: new}, pairs, lambda: time.sleep(REST_S)))
        if sys.stderr.isatty():
            print(f"\r{text}: launch {number + 1} of {args.launches}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return launches


def main(argv: Sequence[str] | None = None) -> int:
    args, slower = arguments(argv), False
    for text in args.work:
        launches = measure(args, text)
        ratio = summary(launches)
        pairs, unequal = len(launches[0].seconds[NEW]), sum(launch.unequal for launch in launches)
        slower |= args.at_least is not None and ratio.low < args.at_least
        if args.json:
            print(json.dumps({"work": text, "ratio": ratio._asdict(), "unequal": unequal,
                              "launches": [launch.seconds for launch in launches]}))
        else:
            print(f"{text}: new is {ratio.value:.3f} ({ratio.low:.3f} .. {ratio.high:.3f}) times as fast as base; "
                  f"{len(launches)} launches of {pairs} pairs; "
                  + (f"outputs differ in {unequal} pairs" if unequal else "equal outputs"), flush=True)
    return int(slower)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EngineError as error:
        sys.exit(str(error))
