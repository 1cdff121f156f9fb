"""The gain of speculation by kind of text: tokens per step, and the time per token without and with it.

    python -m benchmarks.engine.speculation [MODEL.gguf] [--methods auto,ngram] [--kinds chat,code] [--batches 1,4,16]
                                            [--temperatures 0,1] [--tokens N] [--rounds N] [--threads N] [--json]

One engine without speculation and one for each method answer the same prompts in turns, alternating in going first;
prompts are new in each round. Kinds: `chat` questions of MT-Bench; `code` to be repeated with a change; `schema`, lists
of objects under a JSON schema; `repeats`, a text that goes round in circles; `random` ids, from which nothing can be
drafted. A turn counts from the moment at which all requests have their first token. `tokens/step` is of one sequence;
the ratio is the time per token without speculation to that with it, in the same round: above 1 is faster. Exit code 1
if the tokens of two engines differ.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.engine.streams import random_prompts
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, arguments, conclude, others, table

from drut import LLM, Constraint, SamplingParams
from drut.bench.workloads.packed import read_jsonl

PLAIN = "none"
KINDS = ("chat", "code", "schema", "repeats", "random")
SOURCES = sorted((Path(__file__).parents[2] / "src" / "drut").rglob("*.py"))
CODE_LINES, PROMPT = 40, 64
READING = ("temperature_celsius", "relative_humidity", "pressure_hectopascal", "wind_kilometres_per_hour")
READINGS = {"type": "array", "minItems": 60, "items": {
    "type": "object", "properties": {name: {"type": "integer", "minimum": 0, "maximum": 99} for name in READING},
    "required": list(READING), "additionalProperties": False}}
CITIES = ("Pune", "Kyoto", "Lima", "Oslo", "Cairo", "Quito", "Perth", "Turin", "Accra", "Delhi")

Record = dict[str, Any]


class SpeculationTurn(NamedTuple):
    """One turn: seconds and output tokens while all decode, steps, and the tokens of each request."""

    seconds: float
    tokens: int
    steps: int
    answers: list[list[int]]

    @property
    def tpot_s(self) -> float:
        return self.seconds / self.tokens


def prompts(llm: LLM, kind: str, batch: int, dice: random.Random) -> list[list[int]]:
    """Returns the token ids of `batch` new prompts."""
    if kind == "random":
        return random_prompts(dice, llm, [PROMPT] * batch)
    return [llm.encode_chat([{"role": "user", "content": question(kind, dice)}]) for _ in range(batch)]


def question(kind: str, dice: random.Random) -> str:
    if kind == "chat":
        return str(dice.choice(list(read_jsonl("mt-bench")))[0])
    if kind == "code":
        lines = dice.choice([p for p in SOURCES if p.stat().st_size > 4000]).read_text().splitlines()
        first = dice.randrange(max(1, len(lines) - CODE_LINES))
        code = "\n".join(lines[first : first + CODE_LINES])
        return f"Repeat this Python code, with each None replaced by 0:\n\n```python\n{code}\n```"
    if kind == "schema":
        return f"Write the weather of the last days in {dice.choice(CITIES)} as a JSON array of readings."
    names = dice.sample(CITIES, 3)
    return f"Write this line twenty times, and nothing else: {', '.join(names)} and {dice.randrange(1000)} others."


def turn(llm: LLM, ids: list[list[int]], params: list[SamplingParams]) -> SpeculationTurn:
    """Answers all prompts together, and detokenizes each step's tokens at once."""
    answers = [llm.submit(prompt, each)[0] for prompt, each in zip(ids, params, strict=True)]
    by_request = {answer.request: answer for answer in answers}
    waiting, begin, steps, tokens = set(by_request), 0.0, 0, 0
    while llm.engine.busy:
        for update in llm.engine.step():
            if update.token is not None:
                by_request[update.request].push(update)
                by_request[update.request].take()
                waiting.discard(update.request)
                tokens += not waiting
        if not waiting and not begin:
            begin, steps, tokens = time.perf_counter(), llm.engine.meter.steps, 0
    return SpeculationTurn(time.perf_counter() - begin, tokens, llm.engine.meter.steps - steps,
                [answer.request.output_ids for answer in answers])


def measure(engines: dict[str, LLM], kind: str, temperature: float, batch: int, *, rounds: int,
            tokens: int) -> list[Record]:
    """Returns one record for each round. The first round is a warm-up."""
    records, constraint = [], Constraint.json_schema(READINGS) if kind == "schema" else None
    for number in range(rounds + 1):
        dice = random.Random(f"{kind} {number} {batch} {temperature}")
        ids = prompts(engines[PLAIN], kind, batch, dice)
        params = [SamplingParams(max_tokens=tokens, temperature=temperature, seed=number * batch + i, ignore_eos=True,
                                 constraint=constraint) for i in range(batch)]
        load, done = OthersLoad([]), dict[str, SpeculationTurn]()
        for name in list(engines)[:: 1 if number % 2 else -1]:
            done[name] = turn(engines[name], ids, params)
        for name, one in done.items():
            if one.answers != done[PLAIN].answers:
                raise SystemExit(f"{kind}, batch {batch}: the tokens of {name} are not those without speculation")
        if number:
            records.append({"others_cpus": load.cpus(), **{name: one._asdict() | {"tpot_s": one.tpot_s}
                                                           for name, one in done.items()}})
    return records


def summary(records: list[Record], engines: dict[str, LLM], kind: str, temperature: float, batch: int) -> Record:
    rates = {name: Spread.of([r[name]["tokens"] / r[name]["steps"] / batch for r in records]) for name in engines}
    ratios = {name: Spread.of([r[PLAIN]["tpot_s"] / r[name]["tpot_s"] for r in records])
              for name in engines if name != PLAIN}
    return {"kind": kind, "temperature": temperature, "batch": batch, "tokens_per_step": rates, "ratios": ratios,
            "tpot_s": Spread.of([r[PLAIN]["tpot_s"] for r in records])}


def print_report(engine: str, records: list[Record], rows: list[Record]) -> None:
    print(engine)
    names = list(rows[0]["ratios"])
    head = ["text", "T", "batch", "ms/token",
            *(f"{name}: {what}" for name in names for what in ("tokens/step", "ratio"))]
    cells = [[row["kind"], f"{row['temperature']:g}", str(row["batch"]), row["tpot_s"].text(2, 1e3),
              *(text for name in names
                for text in (row["tokens_per_step"][name].text(2), row["ratios"][name].text(3)))] for row in rows]
    print(table(head, cells))
    print(others(records))


def main() -> int:
    parser = arguments(__doc__, rounds=7)
    parser.add_argument("--methods", default="auto", help="settings of --speculate, separated by spaces or commas")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--temperatures", default="0,1")
    parser.add_argument("--tokens", type=int, default=200, help="output tokens of a request (default: 200)")
    args = parser.parse_args()
    methods = args.methods.split() if " " in args.methods or ":" in args.methods else args.methods.split(",")
    engines = {name: LLM(args.model, threads=args.threads, kv_cache_gb=0.5, max_seqs=16, speculate=name)
               for name in (PLAIN, *methods)}
    rows, records = [], list[Record]()
    for kind in args.kinds.split(","):
        for temperature in map(float, args.temperatures.split(",")):
            for batch in map(int, args.batches.split(",")):
                found = measure(engines, kind, temperature, batch, rounds=args.rounds, tokens=args.tokens)
                rows.append(summary(found, engines, kind, temperature, batch))
                records += found
    conclude(args, engines.values(), records, rows, print_report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
