"""How soon a large file answers, and how much memory that takes.

    python -m benchmarks.large FILE.gguf [--rounds N] [--threads N] [--json]

Each round is a process of its own, from its start to the end of an answer of 8 tokens after 16: loading, tokenizer and
all, the file in the page cache and its checksum known from a first round that does not count. Peak memory is the
largest resident set the process ever had, mapped parts of the file included. Exit code 1 where the median answer
takes 5 s or more, or the peak is above 1.15 times the file, 150 MB and the pages of the KV cache that were written.
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

MOST_S, MOST_SHARE, MOST_BESIDE = 5.0, 1.15, 150e6
CHILD = """
import json, resource, sys, time
from drut import LLM, SamplingParams
llm = LLM(sys.argv[1], threads=int(sys.argv[2]), kv_cache_gb=0.5)
loaded = time.time()
answer = llm.generate([list(range(100, 116))], SamplingParams(max_tokens=8, temperature=0, ignore_eos=True))[0]
pool = llm.engine.cache.pool
print(json.dumps({"loaded": loaded, "first": loaded + answer.timings["ttft_s"], "ended": time.time(),
                  "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                  "kv": pool.cached * pool.memory.shape[1] + 2 * pool.memory.shape[1]}))
"""

Record = dict[str, Any]


def measure(model: Path, threads: int) -> Record:
    """One process: seconds since its start, bytes."""
    began = time.time()
    run = subprocess.run([sys.executable, "-c", CHILD, str(model), str(threads)], stdout=subprocess.PIPE, check=True)
    told = json.loads(run.stdout)
    return {"loaded_s": told["loaded"] - began, "first_token_s": told["first"] - began,
            "answer_s": told["ended"] - began, "peak": told["peak"], "kv": told["kv"]}


def main() -> int:
    args = arguments(__doc__, rounds=3).parse_args()
    model, size = Path(args.model), os.path.getsize(args.model)
    records = [measure(model, args.threads) for _ in range(args.rounds + 1)][1:]
    figures = {key: Spread.of([record[key] for record in records]) for key in records[0]}
    allowed = MOST_SHARE * size + MOST_BESIDE + figures["kv"].median

    def show(engine: str, records: list[Record], figures: dict[str, Spread]) -> None:
        print(engine)
        print(table(["", "median (range)"], [[key, figures[key].text(2)] for key in figures if key.endswith("_s")]))
        print(f"the file has {size / 1e9:.2f} GB; peak {figures['peak'].median / 1e9:.2f} GB of {allowed / 1e9:.2f}")

    with LLM(model, threads=args.threads, kv_cache_gb=0.5) as llm:
        conclude(args, [llm], records, figures, show)
    return int(figures["answer_s"].median >= MOST_S or figures["peak"].median > allowed)


if __name__ == "__main__":
    sys.exit(main())
