"""The cost of constraints: compiling, masks, throughput; and whether constrained answers match.

    python -m benchmarks.engine.structured [MODEL.gguf] [--rounds N] [--threads N] [--tries N] [--schemas N] [--json]

Grammars: the parameters of the first `--schemas` distinct tools of the bundled BFCL set, compiled one by one, and each
walked through at random for up to 60 tokens, twice; milliseconds of CPU time of the working thread. Throughput: 16
streams decode 48 tokens, free or constrained to a JSON array of strings, of any length or of 30 characters at most, or
of objects whose keys are long, in turns that alternate in going first; for each also the CPU seconds of the process
(meaningful with `--threads 1`, where no worker waits for another). Fit: `--tries` answers at temperature 1,
each with a seed of its own, to a request for a user as a JSON object. Exit code 1 if a figure misses its bound:
masks of 0.1 ms (median) and 1 ms (99 %), 50 ms to compile (99 %), 0.9 of the free streams' tokens a second, or one
answer that does not match.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
from benchmarks.engine.streams import decode, random_prompts
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, arguments, conclude, others, table

from drut import LLM, Constraint, SamplingParams
from drut.bench.workloads.packed import read_jsonl
from drut.constrain.grammar_matcher import GrammarMatcher
from drut.errors import RequestError
from drut.kernels.descriptor import mask_words

STREAMS, PROMPT, NEW_TOKENS, WALK = 16, 32, 48, 60
BOUNDS = {"mask p50": 0.1, "mask p99": 1.0, "compile p99": 50.0}
FREE = "free"
READING = ("temperature_celsius", "relative_humidity", "pressure_hectopascal")
KINDS: dict[str, Any] = {  # long enough for all tokens
    FREE: None, "strings": {"type": "array", "items": {"type": "string"}, "minItems": 100},
    "short strings": {"type": "array", "items": {"type": "string", "maxLength": 30}, "minItems": 100},
    "readings": {"type": "array", "minItems": 30, "items": {
        "type": "object", "properties": {name: {"type": "integer", "minimum": 0, "maximum": 99} for name in READING},
        "required": list(READING), "additionalProperties": False}}}
USER = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "email": {"type": "string", "format": "email", "maxLength": 40}, "role": {"enum": ["admin", "user", "guest"]},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 3}},
    "required": ["name", "age", "tags", "role"], "additionalProperties": False}
QUESTION = "Describe a fictional user as JSON with name, age, email, tags and role."

Record = dict[str, Any]


def tool_schemas(count: int) -> Iterator[Any]:
    """Yields the parameters of tools, each once."""
    seen = set()
    for row in read_jsonl("bfcl"):
        for tool in row["tools"]:
            schema = tool["function"]["parameters"]
            text = json.dumps(schema)
            if text not in seen and len(seen) < count:
                seen.add(text)
                yield schema


def measure_grammars(llm: LLM, count: int) -> Record:
    """Returns milliseconds of CPU time: compiling each schema, and each mask of the walks."""
    grammars = llm.engine.guides.grammars
    assert grammars is not None
    grammars.check(Constraint.regex("warm"))
    compiles, masks, refused = list[float](), list[float](), 0
    for number, schema in enumerate(tool_schemas(count)):
        try:
            constraint = Constraint.json_schema(schema)
            started = time.thread_time()
            matcher = grammars.build(constraint)
            compiles.append(1e3 * (time.thread_time() - started))
        except RequestError:
            refused += 1
            continue
        del matcher
        for again in range(2):
            guide = grammars.guide(constraint)
            guide.open()
            masks += walk(guide, llm.engine.vocab, random.Random(number + again))
    return {"schemas": len(compiles), "refused": refused, "masks": len(masks),
            **{f"{name} {p}": float(np.percentile(values, float(p[1:])))
               for name, values in (("compile", compiles), ("mask", masks)) for p in ("p50", "p99", "p100")}}


def walk(guide: GrammarMatcher, vocab: int, dice: random.Random) -> Iterator[float]:
    """Yields the milliseconds of each mask on a random path through the grammar."""
    mask = np.zeros(mask_words(vocab), np.int32)
    for _ in range(WALK):
        started = time.thread_time()
        guide.fill(mask)
        yield 1e3 * (time.thread_time() - started)
        ids = np.flatnonzero(np.unpackbits(mask.view(np.uint8), count=vocab, bitorder="little"))
        guide.advance(int(ids[dice.randrange(len(ids))]))
        if guide.over:
            return


def measure_throughput(llm: LLM, rounds: int) -> list[Record]:
    """Returns tokens per second by kind, one record for each round. The first round is a warm-up."""
    kinds = {name: schema and Constraint.json_schema(schema) for name, schema in KINDS.items()}
    records = []
    for number in range(rounds + 1):
        load, record = OthersLoad([]), Record()
        for name in list(kinds) if number % 2 else list(kinds)[::-1]:
            prompts = random_prompts(random.Random(f"{number} {name}"), llm, [PROMPT] * STREAMS)
            started = time.process_time()
            record[name] = decode(llm, prompts, NEW_TOKENS, kinds[name]).tokens_per_s
            record[f"{name} CPU s"] = time.process_time() - started
        record["others_cpus"] = load.cpus()
        if number:
            records.append(record)
    return records


def measure_fit(llm: LLM, tries: int) -> Record:
    """Counts the answers that match the schema and ended by themselves."""
    prompt = llm.encode_chat([{"role": "user", "content": QUESTION}])
    constraint = Constraint.json_schema(USER)
    params = [SamplingParams(max_tokens=300, temperature=1.0, seed=i, constraint=constraint) for i in range(tries)]
    answers = llm.generate([prompt] * tries, params)
    return {"tries": tries, "fit": sum(a.finish_reason == "stop" and fits(a.text) for a in answers)}


def fits(text: str) -> bool:
    checker = jsonschema.FormatChecker()
    return jsonschema.Draft202012Validator(USER, format_checker=checker).is_valid(json.loads(text))


def print_report(engine: str, records: list[Record], summary: Record) -> None:
    print(engine)
    g = summary["grammars"]
    print(f"{g['schemas']} schemas ({g['refused']} more refused), {g['masks']} masks; ms of CPU time")
    print(table(["", "p50", "p99", "most"], [[name, *(f"{g[f'{name} {p}']:.3f}" for p in ("p50", "p99", "p100"))]
                                             for name in ("compile", "mask")]))
    if records:
        print(f"{STREAMS} streams, free: {summary[FREE].text(0)} tokens/s")
        rows = [[name, summary[name].text(3), summary[f"{name} CPU s"].text(3)] for name in KINDS if name != FREE]
        print(table(["constrained to", "tokens/s / free", "CPU time, free / constrained"], rows))
        print(others(records))
    print(f"{summary['fit']['fit']} of {summary['fit']['tries']} answers fit")


def main() -> int:
    parser = arguments(__doc__, rounds=7)
    parser.add_argument("--tries", type=int, default=200, help="answers to judge (default: 200)")
    parser.add_argument("--schemas", type=int, default=400, help="tools to compile (default: 400)")
    args = parser.parse_args()
    llm = LLM(args.model, threads=args.threads, kv_cache_gb=0.5)
    records = measure_throughput(llm, args.rounds)
    summary: Record = {
        "grammars": measure_grammars(llm, args.schemas), "fit": measure_fit(llm, args.tries),
        FREE: Spread.of([r[FREE] for r in records])}
    for name in KINDS:
        if name != FREE:
            summary[name] = Spread.of([r[name] / r[FREE] for r in records])
            summary[f"{name} CPU s"] = Spread.of([r[f"{FREE} CPU s"] / r[f"{name} CPU s"] for r in records])
    conclude(args, [llm], records, summary, print_report)
    within = all(summary["grammars"][name] <= bound for name, bound in BOUNDS.items())
    quick = all(summary[name].median >= 0.9 for name in KINDS if name != FREE)
    return 0 if within and quick and summary["fit"]["fit"] == args.tries else 1


if __name__ == "__main__":
    sys.exit(main())
