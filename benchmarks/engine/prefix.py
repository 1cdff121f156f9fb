"""The time that a shared prefix of 1,000 tokens saves the second request with it.

    python -m benchmarks.engine.prefix [MODEL.gguf] [--rounds N] [--threads N] [--json]

A round has a new prefix of random token ids and two requests with it, one after the other, each with 8 more ids of its
own. Exit code 1 if, in the median of the rounds, the second's TTFT is above 5 % of the first's, or its cached tokens
are below 95 % of the prefix.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from benchmarks.engine.streams import random_prompts
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, arguments, conclude, others, table

from drut import LLM, SamplingParams

PREFIX, OWN = 1000, 8
MAX_TTFT, MIN_CACHED = 0.05, 0.95

Record = dict[str, Any]


def measure(llm: LLM, rounds: int) -> list[Record]:
    """Returns one record for each round. The first round is a warm-up."""
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    records = []
    for number in range(rounds + 1):
        load = OthersLoad([])
        prefix, first, second = random_prompts(random.Random(number), llm, [PREFIX, OWN, OWN])
        cold, warm = (llm.generate([prefix + own], params)[0] for own in (first, second))
        if number:
            records.append({
                "cold_ttft_s": cold.timings["ttft_s"],
                "warm_ttft_s": warm.timings["ttft_s"],
                "ratio": warm.timings["ttft_s"] / cold.timings["ttft_s"],
                "cold_cached_tokens": cold.cached_tokens,
                "warm_cached_tokens": warm.cached_tokens,
                "others_cpus": load.cpus(),
            })
    return records


def print_report(engine: str, records: list[Record], figures: dict[str, Spread]) -> None:
    print(engine)
    print(table(["request", "TTFT, ms", "% of the first's", f"cached of {PREFIX}"], [
        ["first", figures["cold_ttft_s"].text(1, 1000), "100", figures["cold_cached_tokens"].text(0)],
        ["second", figures["warm_ttft_s"].text(1, 1000), figures["ratio"].text(1, 100),
         figures["warm_cached_tokens"].text(0)],
    ]))
    print(others(records))


def main() -> int:
    args = arguments(__doc__, rounds=9).parse_args()
    llm = LLM(args.model, threads=args.threads, kv_cache_gb=0.5)
    records = measure(llm, args.rounds)
    figures = {key: Spread.of([record[key] for record in records]) for key in records[0]}
    conclude(args, [llm], records, figures, print_report)
    cached = figures["warm_cached_tokens"].median / PREFIX
    return int(figures["ratio"].median > MAX_TTFT or cached < MIN_CACHED)


if __name__ == "__main__":
    sys.exit(main())
