"""Mutants of small models, read under limits: `python -m tests.fuzz --mutants 50000`.

A finding is a signal, an exception that is no DrutError, more than a second of CPU time, more than 200 MB, or a file
left open. `--from N --mutants 1` reads mutant N of the same `--run` again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

BATCH = 1000  # mutants of one process
PATIENCE_S = 900  # for a batch, on a machine that does other things too


@dataclass
class Result:
    """Of one batch or all."""

    read: int = 0
    opened: int = 0
    slowest_s: float = 0.0
    peak_mb: float = 0.0
    findings: list[str] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.read += other.read
        self.opened += other.opened
        self.slowest_s, self.peak_mb = max(self.slowest_s, other.slowest_s), max(self.peak_mb, other.peak_mb)
        self.findings += other.findings

    def __str__(self) -> str:
        return (f"{self.read} mutants read, {self.opened} of them good models, the rest refused; slowest "
                f"{self.slowest_s:.2f} s, {self.peak_mb:.0f} MB at most, {len(self.findings)} findings")


def fuzz(run: int, first: int, last: int, reader: str = "tests.fuzz.worker") -> Result:
    """Reads mutants `first` to `last` with the function `read` of module `reader`; after one that ends the process it
    goes on with the next."""
    whole = Result()
    while first < last:
        end = min(first + BATCH, last)
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
            batch, first = _batch(run, first, end, Path(directory), reader)
        whole.add(batch)
    return whole


def _batch(run: int, first: int, end: int, directory: Path, reader: str) -> tuple[Result, int]:
    """One process, and the mutant to go on with."""
    command = [sys.executable, "-m", "tests.fuzz.worker", str(run), str(first), str(end), str(directory), reader]
    env = os.environ | {"TOKENIZERS_PARALLELISM": "false", "MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
    ended = ""
    try:
        done = subprocess.run(command, capture_output=True, env=env, timeout=PATIENCE_S)
        out, code, err = done.stdout, done.returncode, done.stderr
        if code:
            how = signal.Signals(-code).name if code < 0 else code
            ended = f"ended with {how}: {err.decode(errors='replace')[-600:]}"
    except subprocess.TimeoutExpired as expired:
        out, ended = expired.stdout or b"", f"hangs: no end after {PATIENCE_S} s"
    result = Result()
    for line in map(json.loads, out.splitlines()):
        if "mutant" in line:
            result.findings.append(f"mutant {line['mutant']}: {line['why']}")
        else:
            result.opened, result.slowest_s, result.peak_mb = line["opened"], line["slowest_s"], line["peak_mb"]
            if line["leaked_files"]:
                result.findings.append(f"mutants {first} to {end}: {line['leaked_files']} files left open")
    if not ended:
        result.read = end - first
        return result, end
    at = directory / "at"
    last = int(at.read_text()) if at.exists() else end - 1  # none: not even the seeds could be read
    result.read = last + 1 - first
    result.findings.append(f"mutant {last}: the process {ended}")
    return result, last + 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutants", type=int, default=50_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--run", type=int, default=1, help="another number, other mutants")
    args = parser.parse_args()
    result = fuzz(args.run, args.first, args.first + args.mutants)
    for finding in result.findings:
        print(finding)
    print(result)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
