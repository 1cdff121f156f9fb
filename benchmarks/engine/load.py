"""The time that stored packed weights save at a later load, and their cost at the first one.

    python -m benchmarks.engine.load [MODEL.gguf] [--rounds N] [--threads N] [--json]

A round loads the model in separate processes: without the cache, for the first time with it, and again; then without
and with it once more after the system has dropped the file from the page cache. A load is the time of `LLM(...)`,
including weights and tokenizer, in seconds and in CPU seconds; imports are not counted, nor is the checksum of the
model file, which is known by then. Packs are stored in a temporary folder. Exit code 1 if, in the median of the rounds,
the load with stored weights is not the faster one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Spread, arguments, conclude, table

from drut import LLM
from drut.model.store import resolve

CHILD = """
import json, sys, time
from drut import LLM
began = time.process_time()
llm = LLM(sys.argv[1], threads=int(sys.argv[2]), kv_cache_gb=0.5, pack_cache=sys.argv[3] == "on")
print(json.dumps({"load_s": llm.load_s, "cpu_s": time.process_time() - began}))
"""
OFF, FIRST, KEPT = "off", "on, the first", "on, a later one"
TURNS = (OFF, FIRST, KEPT, f"{OFF}, from disk", f"{KEPT}, from disk")

Record = dict[str, Any]


def load(model: Path, threads: int, turn: str, home: Path) -> dict[str, float]:
    """Loads the model once in a process of its own."""
    if turn == FIRST:
        for path in packs(home):
            path.unlink()
    if turn.endswith("from disk"):
        forget([model, *packs(home)])
    cache = "off" if turn.startswith(OFF) else "on"
    run = subprocess.run([sys.executable, "-c", CHILD, str(model), str(threads), cache],
                         env=os.environ | {"DRUT_HOME": str(home)}, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def packs(home: Path) -> list[Path]:
    return list(home.glob("packs/*.pack"))


def forget(files: Sequence[Path]) -> None:
    """Drops `files` from the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(model: Path, threads: int, rounds: int) -> list[Record]:
    """Returns one record for each round. The first round is a warm-up."""
    records = []
    with tempfile.TemporaryDirectory(dir=model.parent) as home:
        for number in range(rounds + 1):
            record: Record = {turn: load(model, threads, turn, Path(home)) for turn in TURNS}
            record["pack_mb"] = sum(path.stat().st_size for path in packs(Path(home))) / 1e6
            if not record["pack_mb"]:
                raise SystemExit(f"{model.name} is too small to be stored")
            if number:
                records.append(record)
    return records


def main() -> int:
    args = arguments(__doc__, rounds=5).parse_args()
    model = resolve(args.model)
    records = measure(model, args.threads, args.rounds)
    figures = {turn: {key: Spread.of([record[turn][key] for record in records]) for key in ("load_s", "cpu_s")}
               for turn in TURNS}
    with LLM(model, threads=args.threads, kv_cache_gb=0.5, pack_cache=False) as llm:
        conclude(args, [llm], records, figures, print_report)
    return int(figures[KEPT]["load_s"].median >= figures[OFF]["load_s"].median)


def print_report(engine: str, records: list[Record], figures: dict[str, dict[str, Spread]]) -> None:
    print(engine)
    print(table(["pack_cache", "load, s", "CPUs, s"],
                [[turn, spread["load_s"].text(2), spread["cpu_s"].text(2)] for turn, spread in figures.items()]))
    print(f"the pack has {records[0]['pack_mb']:.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
