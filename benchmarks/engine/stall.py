"""How long eight streams stall when a prompt of 4,000 tokens arrives, with chunked prefill and without.

    python -m benchmarks.engine.stall [MODEL.gguf] [--rounds N] [--threads N] [--json]

Eight requests with prompts of 256 tokens decode; then a ninth arrives with a long one. A stream's stall is the largest
gap between two of its tokens from that arrival until the ninth has two tokens, over the median gap of all streams
before the arrival. Two engines that differ only in `chunk_tokens` take turns: `auto` is the default (as many prompt
tokens in a step as do not stall the streams), `whole` is 0. `no prompt` is the control: on the engine of `auto` nothing
arrives, and the streams decode as many tokens as they did together with its prompt; its gaps come from the machine and
from growing contexts. Exit code 1 if the longest stall of `auto` is above 3 in the median of the rounds.
"""

from __future__ import annotations

import random
import statistics
import sys
from itertools import pairwise
from typing import Any

from benchmarks.engine.streams import Driver, random_prompts
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, arguments, conclude, others, table

from drut import LLM

STREAMS, PROMPT, LONG_PROMPT = 8, 256, 4000
SETTLE = 48  # tokens of each stream before the long prompt arrives
MAX_STALL = 3.0
CHUNKING: dict[str, int | None] = {"auto": None, "whole": 0}

CONTROL = "no prompt"

Record = dict[str, Any]


def stall(llm: LLM, rng: random.Random, length: int, steps: int | None = None) -> Record:
    """Runs decoding streams together with one arrival of a prompt, or alone for `steps` steps. Returns seconds, and the
    longest stall."""
    driver = Driver(llm)
    streams = [driver.submit(p, LONG_PROMPT) for p in random_prompts(rng, llm, [PROMPT] * STREAMS)]
    while any(len(stream.times) < SETTLE for stream in streams):
        driver.step()
    usual = statistics.median(gap for stream in streams for gap in stream.itl)
    before, ttft = len(streams[0].times), None
    if steps is None:
        (prompt,) = random_prompts(rng, llm, [length])
        arrival = driver.submit(prompt, 2)
        begun = arrival.answer.request.arrived
        while len(arrival.times) < 2:
            driver.step()
        ttft = arrival.ttft
    else:
        begun = streams[0].times[-1]
        while len(streams[0].times) < before + steps:
            driver.step()
    driver.stop()
    gaps = [b - a for stream in streams for a, b in pairwise(stream.times) if b > begun]
    p99 = statistics.quantiles(gaps, n=100)[98]
    return {"usual_itl_s": usual, "median_itl_s": statistics.median(gaps), "p99_itl_s": p99,
            "longest_itl_s": max(gaps), "p99_stall": p99 / usual, "stall": max(gaps) / usual, "ttft_s": ttft,
            "steps": len(streams[0].times) - before}


def measure(engines: dict[str, LLM], rounds: int) -> list[Record]:
    """Returns one record for each round, with the results of each engine. An additional first round with a shorter
    prompt is a warm-up."""
    records = []
    for number in range(rounds + 1):
        load = OthersLoad([])
        length = LONG_PROMPT if number else LONG_PROMPT // 8
        record: Record = {name: stall(llm, random.Random(number), length) for name, llm in engines.items()}
        record[CONTROL] = stall(engines["auto"], random.Random(number), length, record["auto"]["steps"])
        record["others_cpus"] = load.cpus()
        if number:
            records.append(record)
    return records


def summary(records: list[Record], name: str) -> Record:
    keys = [key for key, value in records[0][name].items() if value is not None]
    return {"chunk_tokens": name, **{key: Spread.of([record[name][key] for record in records]) for key in keys}}


def print_report(engine: str, records: list[Record], rows: list[Record]) -> None:
    print(engine)
    cells = [[row["chunk_tokens"], row["usual_itl_s"].text(1, 1000), row["median_itl_s"].text(1, 1000),
              row["p99_itl_s"].text(1, 1000), row["longest_itl_s"].text(1, 1000), row["p99_stall"].text(2),
              row["stall"].text(2), row["ttft_s"].text(2) if "ttft_s" in row else "", row["steps"].text(0)]
             for row in rows]
    print(table(["chunk_tokens", "usual ITL, ms", "ITL then, ms", "P99, ms", "longest, ms", "P99 / usual",
                 "longest / usual", "TTFT of prompt, s", "steps"], cells))
    print(others(records))


def main() -> int:
    args = arguments(__doc__, rounds=5).parse_args()
    engines = {name: LLM(args.model, threads=args.threads, kv_cache_gb=0.5, chunk_tokens=chunk)
               for name, chunk in CHUNKING.items()}
    records = measure(engines, args.rounds)
    rows = [summary(records, name) for name in (*engines, CONTROL)]
    conclude(args, engines.values(), records, rows, print_report)
    return int(rows[0]["stall"].median > MAX_STALL)


if __name__ == "__main__":
    sys.exit(main())
