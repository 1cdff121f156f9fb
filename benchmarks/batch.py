"""Decode at batch 1, 8 and 32, beside llama.cpp decoding one sequence, and beside what the machine can do.

    python benchmarks/batch.py [MODEL.gguf] [--rounds N] [--threads N] [--json]

Requests have prompts of 32 random token ids and decode 64 tokens greedily. Counted are the tokens after the last
request's first one, over the time they took. Rounds are interleaved with llama.cpp on the same file and the ratio
is taken within a round. The roof of a step is the longer of: its bytes over the bandwidth of reading as many, its
multiply-accumulates over the int8 peak; both are measured in the same rounds, the best of which counts. Exit code 1
where batch 8 or batch 32 is below 1.5 times llama.cpp's speed.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from machine_load import OthersLoad
from report import Spread, about, arguments, others, table, to_json
from streams import Decoded, decode, random_prompts
from vs_llamacpp import BUILD, llamacpp_python
from worker import Worker

from drut import LLM
from drut.kernels.cost import Cost, StepShape
from drut.kernels.native.library import load
from drut.kernels.native.memory import reserve
from drut.machine import usable_cpus
from drut.plan.probe import NativeProbe

BATCHES = (1, 8, 32)
PROMPT, NEW_TOKENS = 32, 64
LEAST_RATIO = 1.5
PROBE_S = 0.1  # seconds of each measurement of the roof

Record = dict[str, Any]


class Roof:
    """What the machine gives at most, the best of its measurements: bytes a second, multiply-accumulates a second."""

    def __init__(self, working_set: int, threads: int) -> None:
        library = load()
        if library is None:
            raise SystemExit("the roof of the native kernels needs the native library, which is not built")
        self._probe, self._threads = NativeProbe(library, usable_cpus()), threads
        self._buffer = reserve(working_set // 256 * 256, huge=True)
        self._probe.touch(self._buffer)
        self.bytes_per_s = self.macs_per_s = 0.0

    def measure(self) -> None:
        self.bytes_per_s = max(self.bytes_per_s, 1e9 * self._probe.read(self._buffer, self._threads, PROBE_S))
        self.macs_per_s = max(self.macs_per_s, 1e9 * self._probe.int8(self._threads, PROBE_S))

    def floor(self, cost: Cost) -> float:
        """Seconds below which no step of this cost can be."""
        return max(cost.bytes / self.bytes_per_s, cost.macs / self.macs_per_s)


def measure(llm: LLM, llamacpp: Worker, path: str, rounds: int, roof: Roof) -> list[Record]:
    """One record a round: tokens a second of llama.cpp and of each batch. The first round warms up."""
    records = []
    for number in range(rounds + 1):
        rng = random.Random(number)
        load = OthersLoad([llamacpp.process.pid])
        (prompt,) = random_prompts(rng, llm, [PROMPT])
        reply = llamacpp("run", model=path, prompt=prompt, new_tokens=NEW_TOKENS)
        runs = {b: decode(llm, random_prompts(rng, llm, [PROMPT] * b), NEW_TOKENS) for b in BATCHES}
        roof.measure()
        if number:
            records.append({"llama.cpp": reply["decode_tokens_per_s"], "others_cpus": load.cpus(),
                            "drut": {b: run.tokens_per_s for b, run in runs.items()}, "runs": runs})
    return records


def summary(records: list[Record], llm: LLM, roof: Roof) -> list[Record]:
    """A row a batch size: speed, ratio within rounds, share of the roof and what the roof is made of."""
    rows = []
    for batch in BATCHES:
        runs: list[Decoded] = [record["runs"][batch] for record in records]
        costs = [[llm.engine.runner.plan.cost(shape) for shape in run.shapes] for run in runs]
        shares = [sum(map(roof.floor, steps)) / run.seconds for steps, run in zip(costs, runs, strict=True)]
        widest = max((cost for steps in costs for cost in steps), key=roof.floor)
        by_bytes = widest.bytes / roof.bytes_per_s > widest.macs / roof.macs_per_s
        rows.append({
            "batch": batch,
            "tokens_per_s": Spread.of([record["drut"][batch] for record in records]),
            "ratio": Spread.of([record["drut"][batch] / record["llama.cpp"] for record in records]),
            "step_s": Spread.of([run.seconds / len(run.shapes) for run in runs]),
            "roof_share": Spread.of(shares),
            "roof": "bandwidth" if by_bytes else "int8 peak",
            "step_mb": widest.bytes / 1e6,
            "step_gmac": widest.macs / 1e9,
        })
    return rows


def print_report(engines: list[str], records: list[Record], rows: list[Record], roof: Roof) -> None:
    print("\n".join(engines))
    print(f"roof: reads {roof.bytes_per_s / 1e9:.1f} GB/s, int8 {roof.macs_per_s / 1e9:.0f} GMAC/s")
    llamacpp = Spread.of([record["llama.cpp"] for record in records])
    cells = [["llama.cpp, batch 1", llamacpp.text(0), "1", f"{1000 / llamacpp.median:.1f}", "", ""]]
    for row in rows:
        bound = f"{row['roof']}: {row['step_mb']:.0f} MB, {row['step_gmac']:.2f} GMAC"
        cells.append([f"drut, batch {row['batch']}", row["tokens_per_s"].text(0), row["ratio"].text(2),
                      row["step_s"].text(1, 1000), row["roof_share"].text(0, 100), bound])
    print(table(["", "tokens/s", "x llama.cpp", "step, ms", "% of roof", "the roof is"], cells))
    print(others(records))


def main() -> int:
    args = arguments(__doc__, rounds=7).parse_args()
    (BUILD / "bench").mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("worker_llamacpp.py")
    llamacpp = Worker(llamacpp_python(), script, BUILD / "bench" / "llamacpp.log")
    with LLM(args.model, threads=args.threads) as llm:
        path = str(llm.files.path)
        llamacpp("load", model=path, threads=args.threads)
        roof = Roof(llm.engine.runner.plan.cost(StepShape(1, 1, PROMPT, PROMPT)).bytes, args.threads)
        records = measure(llm, llamacpp, path, args.rounds, roof)
        rows = summary(records, llm, roof)
        engines = [about(llm), llamacpp("about")["engine"]]
    llamacpp.close()
    if args.json:
        rounds = [{key: value for key, value in record.items() if key != "runs"} for record in records]
        roofs = {"read_bytes_per_s": roof.bytes_per_s, "int8_mac_per_s": roof.macs_per_s}
        print(to_json(engines=engines, threads=args.threads, roof=roofs, summary=rows, rounds=rounds))
    else:
        print_report(engines, records, rows, roof)
    return int(any(row["ratio"].median < LEAST_RATIO for row in rows if row["batch"] > 1))


if __name__ == "__main__":
    sys.exit(main())
