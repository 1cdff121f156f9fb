"""Whether required tool calls parse and match their tool's schema, and whether they are right.

    python -m benchmarks.engine.tools smollm2-135m-instruct [--groups simple multiple] [--limit N] [--answers FOLDER]

Each question of BFCL's sets is sent with `tool_choice: required`: a grammar of the calls constrains the answer, and the
parser reads it back. `--string-chars` and `--array-items` are the server's settings of the same names. FOLDER is
`possible_answer` of the package bfcl-eval; with it calls are scored: the right function, every argument one of the
allowed values, no required argument missing. The package is not needed otherwise.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jsonschema

from drut import LLM, SamplingParams
from drut.bench.workloads.packed import read_jsonl
from drut.model.template.templates import ChatTemplates
from drut.parse import ParsedMessage
from drut.parse.calling import Tool, constraint
from drut.parse.choose import tool_format
from drut.parse.narrowing import FREE, Bounds
from drut.parse.offer import OfferedTools
from drut.parse.reading import Reading

BATCH = 64
PENALTY = 0.2  # a small model may fill an array or a text without end; schemas rarely limit their length


def questions(group: str, limit: int | None) -> list[dict]:
    return [row for row in read_jsonl("bfcl") if row["group"] == group][:limit]


def answers(folder: Path | None, group: str) -> list[list[dict]] | None:
    """Returns the right answers to each question, in order."""
    if folder is None:
        return None
    (file,) = [f for f in folder.glob("*.json") if f.stem in (f"BFCL_v4_{group}", f"BFCL_v4_{group}_python")]
    found = [json.loads(line)["ground_truth"] for line in file.read_text().splitlines()]
    assert len(found) == len(questions(group, None)), "the answers belong to other questions"
    return found


def right(name: str, arguments: dict, allowed: list[dict]) -> bool:
    """Returns whether a call is expected. An empty text among the allowed values means that the argument is
    optional."""
    ((wanted, values),) = allowed[0].items()
    if name != wanted.replace(".", "_") or len(allowed) != 1 or not set(arguments) <= set(values):
        return False
    return all(arguments[key] in choices if key in arguments else "" in choices for key, choices in values.items())


class Asker:
    def __init__(self, model: str, max_tokens: int, threads: int | None, bounds: Bounds = FREE) -> None:
        self.llm = LLM(model, grammar_timeout_s=60, threads=threads)
        assert self.llm.tokenizer is not None
        self.tokenizer, self.max_tokens, self.bounds = self.llm.tokenizer, max_tokens, bounds
        self.templates = ChatTemplates.of(self.tokenizer)
        self.form = tool_format("auto", self.templates.with_tools)

    def ask(self, rows: list[dict]) -> list[tuple[ParsedMessage, bool]]:
        """Returns the answer to each question, and whether it was cut."""
        prompts, params = [], []
        for row in rows:
            functions = [tool["function"] for tool in row["tools"]]
            tools = [Tool(f["name"], f["parameters"]) for f in functions]
            made = constraint(self.form, tools, "required", self.tokenizer, parallel=False, bounds=self.bounds)
            prompts.append(self.tokenizer.encode_chat(self.templates.render(row["messages"], row["tools"])))
            params.append(SamplingParams(max_tokens=self.max_tokens, temperature=0, constraint=made,
                                         frequency_penalty=PENALTY))
        answers = self.llm.generate(prompts, params)
        return [(self.read(row, answer.text), answer.finish_reason == "length")
                for row, answer in zip(rows, answers, strict=True)]

    def read(self, row: dict, text: str) -> ParsedMessage:
        names = frozenset(tool["function"]["name"] for tool in row["tools"])
        parser = Reading(None, self.form, OfferedTools(names, whole=False), only_calls=True).parser()
        return ParsedMessage([*parser.push(text), *parser.finish()])


def fits(message: ParsedMessage, row: dict) -> str | None:
    """Returns why a message's single call does not match; None if it does."""
    if len(message.calls) != 1 or message.content:
        return f"{len(message.calls)} calls, content {message.content[:60]!r}"
    (call,) = message.calls
    schema = next(t["function"]["parameters"] for t in row["tools"] if t["function"]["name"] == call.name)
    try:
        jsonschema.validate(json.loads(call.arguments), schema)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{str(error).splitlines()[0][:100]}: {call.arguments[:100]}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--groups", nargs="+", default=["simple", "multiple"])
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--string-chars", type=int, default=0)
    parser.add_argument("--array-items", type=int, default=0)
    parser.add_argument("--answers", type=Path)
    args = parser.parse_args()
    asker = Asker(args.model, args.max_tokens, args.threads, Bounds(args.string_chars, args.array_items))
    for group in args.groups:
        rows, wanted = questions(group, args.limit), answers(args.answers, group)
        fitting = cuts = named = score = 0
        started = time.monotonic()
        for first in range(0, len(rows), BATCH):
            batch = rows[first : first + BATCH]
            for i, (row, (message, cut)) in enumerate(zip(batch, asker.ask(batch), strict=True), first):
                why = "cut" if cut else fits(message, row)
                cuts += cut
                if why is not None:
                    print(f"{group} {i}: {why}")
                    continue
                fitting += 1
                if wanted is not None:
                    (call,) = message.calls
                    named += call.name == next(iter(wanted[i][0])).replace(".", "_")
                    score += right(call.name, json.loads(call.arguments), wanted[i])
            print(f"{group}: {first + len(batch)} asked, {fitting} fit, {named} of the right function, {score} right, "
                  f"{time.monotonic() - started:.0f} s", flush=True)
        scored = f"; right function {named}, right call {score}" if wanted is not None else ""
        print(f"{group}: {fitting} of {len(rows) - cuts} calls that were not cut parse and fit the schema, {cuts} were "
              f"cut at {args.max_tokens} tokens{scored}")


if __name__ == "__main__":
    main()
