"""The time until a large model answers, and the memory that takes.

    python -m benchmarks.engine.large FILE.gguf [--no-pack-cache] [--rounds N] [--threads N] [--json]

Each round is a process of its own, from its start to the end of an answer of 8 tokens after 16, including loading and
tokenizer. A first round, which does not count, packs and stores the weights and fills the page cache. Peak memory is
the largest resident set of the process, including mapped parts of files. Exit code 1 if the median answer takes 5 s
or more, or the peak is above 1.15 times the file, 150 MB and the written pages of the KV cache.

"touch": in each round another process writes to as much new memory as the file is large, in huge pages, with all CPUs.
Without the pack cache no load takes less. Before either process there is a pause, in which a virtual machine may return
free memory to its host, because such memory is the slowest to allocate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Spread, arguments, conclude, table

from drut import LLM

MAX_S, MAX_SHARE, MAX_BESIDE = 5.0, 1.15, 150e6
PAUSE_S = 5.0
CHILD = """
import json, resource, sys, time
from drut import LLM, SamplingParams
llm = LLM(sys.argv[1], threads=int(sys.argv[2]), kv_cache_gb=0.5, pack_cache=bool(int(sys.argv[3])))
loaded = time.time()
answer = llm.generate([list(range(100, 116))], SamplingParams(max_tokens=8, temperature=0, ignore_eos=True))[0]
pool = llm.engine.cache.pool
print(json.dumps({"loaded": loaded, "first": loaded + answer.timings["ttft_s"], "ended": time.time(),
                  "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                  "kv": pool.cached * pool.memory.page_bytes + 2 * pool.memory.page_bytes}))
"""

TOUCH = """
import sys, time
from drut.kernels.native.library import load
from drut.kernels.native.memory import reserve
from drut.machine import usable_cpus
from drut.plan.probe import NativeProbe
probe, memory, began = NativeProbe(load(), usable_cpus()), reserve(int(sys.argv[1]), huge=True), time.perf_counter()
probe.touch(memory)
print(time.perf_counter() - began)
"""

Record = dict[str, Any]


def measure(model: Path, threads: int, packs: bool) -> Record:
    """Runs one process, and the one that touches memory. Returns seconds since its start, and bytes."""
    _, touch = _run(TOUCH, str(os.path.getsize(model)))
    began, answer = _run(CHILD, str(model), str(threads), str(int(packs)))
    output = json.loads(answer)
    return {"touch_s": float(touch), "loaded_s": output["loaded"] - began, "first_token_s": output["first"] - began,
            "answer_s": output["ended"] - began, "peak": output["peak"], "kv": output["kv"]}


def _run(code: str, *words: str) -> tuple[float, str]:
    """Runs a process after a pause. Returns its start time and its output."""
    time.sleep(PAUSE_S)
    began = time.time()
    done = subprocess.run([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, check=True, text=True)
    return began, done.stdout


def main() -> int:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--no-pack-cache", action="store_true", help="pack again in each round")
    args = parser.parse_args()
    model, size = Path(args.model), os.path.getsize(args.model)
    records = [measure(model, args.threads, not args.no_pack_cache) for _ in range(args.rounds + 1)][1:]
    figures = {key: Spread.of([record[key] for record in records]) for key in records[0]}
    allowed = MAX_SHARE * size + MAX_BESIDE + figures["kv"].median

    def show(engine: str, records: list[Record], figures: dict[str, Spread]) -> None:
        print(engine)
        print(table(["", "median (range)"], [[key, figures[key].text(2)] for key in figures if key.endswith("_s")]))
        print(f"the file has {size / 1e9:.2f} GB; peak {figures['peak'].median / 1e9:.2f} GB of {allowed / 1e9:.2f}")

    with LLM(model, threads=args.threads, kv_cache_gb=0.5, pack_cache=not args.no_pack_cache) as llm:
        conclude(args, [llm], records, figures, show)
    return int(figures["answer_s"].median >= MAX_S or figures["peak"].median > allowed)


if __name__ == "__main__":
    sys.exit(main())
