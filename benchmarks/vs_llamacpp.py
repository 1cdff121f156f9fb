"""Drut against llama.cpp on the same files, in the same minutes: decode at batch 1, and prefill.

    python benchmarks/vs_llamacpp.py [MODEL.gguf] [--rounds N] [--threads N] [--json]

MODEL is a known name or a GGUF file; a Q4_0 file is made of it by llama.cpp's quantizer. llama.cpp is
compiled for this machine into an environment of its own under build/ on the first run (minutes). Each engine
lives in a process of its own; rounds are interleaved, the engines take turns at going first, and the ratio is
taken within a round. What other processes took meanwhile is told: on a loaded machine an engine's threads
wait for each other and the figures mean little. Exit code 1 where Drut decodes slower than llama.cpp.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from machine_load import OthersLoad
from worker import Worker

from drut.model.store import resolve

HERE = Path(__file__).parent
BUILD = HERE.parent / "build"
REQUIREMENTS = ["llama-cpp-python==0.3.36", "numpy"]
DECODE = {"prompt": 32, "new_tokens": 128}
PREFILL = {"prompt": 512, "new_tokens": 1}
ENGINES = ("drut", "llama.cpp")

Record = dict[str, Any]


def llamacpp_python() -> Path:
    """The interpreter of an environment that has llama.cpp, made if it is missing."""
    folder = BUILD / "venv-llamacpp"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"compiling {REQUIREMENTS[0]} into {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        ready.touch()
    return python


def start_workers() -> dict[str, Worker]:
    """Both engines, each in its process."""
    logs = BUILD / "bench"
    logs.mkdir(parents=True, exist_ok=True)
    return {
        "drut": Worker(Path(sys.executable), HERE / "worker_drut.py", logs / "drut.log"),
        "llama.cpp": Worker(llamacpp_python(), HERE / "worker_llamacpp.py", logs / "llamacpp.log"),
    }


def model_files(shipped: Path, llamacpp: Worker) -> dict[str, str]:
    """Label -> file: the shipped one, and Q4_0 made from it once."""
    q4_0 = BUILD / "bench" / f"{shipped.stem}.Q4_0.gguf"
    if not q4_0.exists():
        llamacpp("quantize", source=str(shipped), target=str(q4_0))
    return {"shipped": str(shipped), "Q4_0": str(q4_0)}


def measure(workers: dict[str, Worker], files: dict[str, str], rounds: int, vocab: int) -> list[Record]:
    """One record a (round, file): tokens a second of each engine. One round more, the first, warms up."""
    records = []
    for number in range(-1, rounds):
        rng = random.Random(number + 1)  # seeds -1 and 1 draw the same
        order = ENGINES if number % 2 else ENGINES[::-1]
        for label, path in files.items():
            record: Record = {"round": number, "file": label}
            load = OthersLoad([worker.process.pid for worker in workers.values()])
            for kind, work in (("decode", DECODE), ("prefill", PREFILL)):
                prompt = [rng.randrange(vocab) for _ in range(work["prompt"])]
                for engine in order:
                    reply = workers[engine]("run", model=path, prompt=prompt, new_tokens=work["new_tokens"])
                    record.setdefault(kind, {})[engine] = reply[f"{kind}_tokens_per_s"]
            record["others_cpus"] = load.cpus()
            if number >= 0:
                records.append(record)
    return records


def summary(records: list[Record], label: str, kind: str) -> Record:
    """Median and range of each engine, and the median of the rounds' ratios."""
    rows = [r[kind] for r in records if r["file"] == label]
    speeds = {engine: [row[engine] for row in rows] for engine in ENGINES}
    return {
        "file": label,
        "kind": kind,
        **{e: {"median": statistics.median(s), "min": min(s), "max": max(s)} for e, s in speeds.items()},
        "ratio": statistics.median(row["drut"] / row["llama.cpp"] for row in rows),
    }


def print_table(rows: list[Record]) -> None:
    print(f"{'tokens/s':<20}" + "".join(f"{engine:>26}" for engine in ENGINES) + f"{'ratio':>8}")
    for row in rows:
        spread = [(row[e]["median"], row[e]["min"], row[e]["max"]) for e in ENGINES]
        cells = "".join(f"{median:>10.1f} ({low:>5.0f} ..{high:>5.0f})" for median, low, high in spread)
        print(f"{row['file'] + ' ' + row['kind']:<20}{cells}{row['ratio']:>8.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct", help="known name or GGUF file")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine (default: 2)")
    parser.add_argument("--json", action="store_true", help="print every round and the summary as JSON")
    args = parser.parse_args()
    workers = start_workers()
    files = model_files(resolve(args.model), workers["llama.cpp"])
    vocab = 0
    for path in files.values():
        for worker in workers.values():
            vocab = worker("load", model=path, threads=args.threads).get("vocab", vocab)
    records = measure(workers, files, args.rounds, vocab)
    rows = [summary(records, label, kind) for kind in ("decode", "prefill") for label in files]
    engines = [workers[engine]("about")["engine"] for engine in ENGINES]
    for worker in workers.values():
        worker.close()
    if args.json:
        print(json.dumps({"engines": engines, "threads": args.threads, "summary": rows, "rounds": records}))
    else:
        print("\n".join(engines))
        print_table(rows)
        busy = statistics.median(record["others_cpus"] for record in records)
        print(f"other processes used {busy:.2f} CPUs{': repeat this when idle' if busy > 0.1 else ''}")
    return int(any(row["ratio"] < 1 for row in rows if row["kind"] == "decode"))


if __name__ == "__main__":
    sys.exit(main())
