"""The gain of overlap and multi-step decoding: the host's work during a step, or once in many steps, instead of after
each.

    python -m benchmarks.engine.overlap [MODEL.gguf] [--rounds N] [--threads N] [--json]

Three engines that differ only in `overlap` and `multi_step` do the same work in turns, alternating in going first:
`plain` schedules and detokenizes between two steps, `overlap` during a step, and `multi-step` (the default) also runs
up to 16 decoding steps in one native call. Ratios are to `plain` within a round. Decode: a batch of 1, 8 or 32
requests, counting tokens after the last request's first one. Mix: 12 requests with prompts of 64 to 384 tokens, 4 at
the start and one more every fourth step, 32 tokens each; all prompt and answer tokens over the whole time. Exit code 1
if the engines' tokens differ.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.engine.streams import Driver, decode, random_prompts
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, arguments, conclude, others, table

from drut import LLM

BATCHES = (1, 8, 32)
PROMPT, NEW_TOKENS = 32, 64
MIX_REQUESTS, MIX_AT_START, MIX_EVERY, MIX_TOKENS = 12, 4, 4, 32
PLAIN = "plain"
SETTINGS: dict[str, dict[str, Any]] = {PLAIN: {"overlap": False}, "overlap": {"multi_step": 1}, "multi-step": {}}

Record = dict[str, Any]
Outcome = tuple[float, list[list[int]]]
"""Tokens per second, and each request's tokens."""


def mix(llm: LLM, rng: random.Random) -> Outcome:
    """Runs prompts that arrive while others decode."""
    prompts = random_prompts(rng, llm, [rng.randrange(64, 385) for _ in range(MIX_REQUESTS)])
    driver, start, waiting = Driver(llm), time.monotonic(), list(prompts)
    streams = [driver.submit(waiting.pop(0), MIX_TOKENS) for _ in range(MIX_AT_START)]
    steps = 0
    while waiting or llm.engine.busy:
        if waiting and steps % MIX_EVERY == 0:
            streams.append(driver.submit(waiting.pop(0), MIX_TOKENS))
        driver.step()
        steps += 1
    seconds = max(stream.times[-1] for stream in streams) - start
    answers = [stream.answer.request.output_ids for stream in streams]
    return sum(map(len, prompts + answers)) / seconds, answers


def batch(llm: LLM, rng: random.Random, size: int) -> Outcome:
    """Runs requests that arrive together and then decode together."""
    run = decode(llm, random_prompts(rng, llm, [PROMPT] * size), NEW_TOKENS)
    return run.tokens_per_s, run.answers


WORK: dict[str, Callable[[LLM, random.Random], Outcome]] = {
    **{f"decode, batch {size}": partial(batch, size=size) for size in BATCHES},
    "mix": mix,
}


def measure(engines: dict[str, LLM], rounds: int) -> list[Record]:
    """Returns one record for each round: tokens per second by work and setting. The first round is a warm-up."""
    records = []
    for number in range(rounds + 1):
        order = list(engines) if number % 2 else list(engines)[::-1]
        load = OthersLoad([])
        record: Record = {}
        for name, work in WORK.items():
            outcomes = {setting: work(engines[setting], random.Random(f"{number} {name}")) for setting in order}
            for setting, (_, answers) in outcomes.items():
                if answers != outcomes[PLAIN][1]:
                    raise SystemExit(f"{name}: the tokens of {setting} are not those of {PLAIN}")
            record[name] = {setting: speed for setting, (speed, _) in outcomes.items()}
        record["others_cpus"] = load.cpus()
        if number:
            records.append(record)
    return records


def summary(records: list[Record], name: str) -> Record:
    pairs = [record[name] for record in records]
    ratios = {f"{setting} / {PLAIN}": Spread.of([pair[setting] / pair[PLAIN] for pair in pairs])
              for setting in SETTINGS if setting != PLAIN}
    return {"work": name, PLAIN: Spread.of([pair[PLAIN] for pair in pairs]), **ratios}


def print_report(engine: str, records: list[Record], rows: list[Record]) -> None:
    print(engine)
    ratios = [key for key in rows[0] if key not in ("work", PLAIN)]
    cells = [[row["work"], row[PLAIN].text(0), *(row[key].text(3) for key in ratios)] for row in rows]
    print(table(["work", f"{PLAIN}, tokens/s", *ratios], cells))
    print(others(records))


def main() -> int:
    args = arguments(__doc__, rounds=7).parse_args()
    engines = {name: LLM(args.model, threads=args.threads, kv_cache_gb=0.5, **settings)
               for name, settings in SETTINGS.items()}
    records = measure(engines, args.rounds)
    rows = [summary(records, name) for name in WORK]
    conclude(args, engines.values(), records, rows, print_report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
