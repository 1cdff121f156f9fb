"""Makes the data files of `src/drut/bench/workloads/data` from the originals listed in its SOURCES.md.

    python -m benchmarks.data.pack_data FOLDER_OF_ORIGINALS [TARGET]

The same originals give the same bytes, because the gzip headers contain no names or times.
"""

import ast
import csv
import gzip
import io
import json
import re
import sys
from datetime import datetime
from pathlib import Path

DATA = Path(__file__).parents[2] / "src/drut/bench/workloads/data"

TOOL_GROUPS = {"simple": "simple_python", "multiple": "multiple", "parallel": "parallel", "live": "live_simple",
               "irrelevance": "irrelevance"}
OTEL = ("code_review_workflow", "multi_agent_research")
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def azure(path):
    """Returns microseconds from the first row, and the lengths."""
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    lines = ["at_us,input,output"]
    for row, at in zip(rows, times, strict=True):
        offset = at - times[0]
        microseconds = (offset.days * 86400 + offset.seconds) * 1_000_000 + offset.microseconds
        lines.append(f"{microseconds},{row['ContextTokens']},{row['GeneratedTokens']}")
    return "\n".join(lines) + "\n"


def runs(ids):
    """Returns [start, count, start, count, ...] of consecutive ids."""
    out = []
    for i in ids:
        if out and out[-2] + out[-1] == i:
            out[-1] += 1
        else:
            out += [i, 1]
    return out


def mooncake(path):
    return jsonl([r["timestamp"], r["input_length"], r["output_length"], runs(r["hash_ids"])]
                 for r in read_jsonl(path))


def servegen(path):
    """Returns the probability by length, one record for every six hours of the day; probability 0 is omitted."""
    rows = []
    for second, table in json.loads(path.read_text()).items():
        row = {"hour": int(second) // 3600}
        for ours, theirs in (("input", "input_tokens"), ("output", "output_tokens")):
            shares = ast.literal_eval(table[theirs])
            row[ours] = [[int(n), float(f"{p:.6g}")] for n, p in sorted(shares.items()) if p > 0]
        rows.append(row)
    return jsonl(rows)


def tau_bench(path):
    """Parses messages from the printed trajectory; a tool call was printed as `assistant: None`."""
    rows = []
    for record in read_jsonl(path):
        parts = re.split(r"^(user|assistant|tool): ", record["messages_display"], flags=re.MULTILINE)
        if parts[0]:
            raise ValueError(f"a trajectory begins with {parts[0][:40]!r}")
        rows.append([[role, text.rstrip("\n")] for role, text in zip(parts[1::2], parts[2::2], strict=True)])
    return jsonl(rows)


def otel(folder):
    rows = []
    for name in OTEL:
        trace = json.loads((folder / f"otel_agent_{name}.json").read_text())
        start = min(datetime.fromisoformat(span["start_time"]) for span in trace["spans"])
        for span in trace["spans"]:
            at, attributes = datetime.fromisoformat(span["start_time"]), span["attributes"]
            rows.append({
                "trace": name, "span": span["span_id"], "at_s": (at - start).total_seconds(),
                "max_tokens": attributes["gen_ai.request.max_tokens"],
                "messages": json.loads(attributes["gen_ai.input.messages"]),
            })
    return jsonl(rows)


def schema(node):
    """Converts the data set's Python types to a JSON Schema; `any` has no type."""
    out = {key: value for key, value in node.items() if key not in ("type", "optional")}
    kind = node.get("type")
    if kind and kind != "any":
        out["type"] = JSON_TYPES.get(kind, kind)
    if isinstance(node.get("properties"), dict):
        out["properties"] = {name: schema(value) for name, value in node["properties"].items()}
    if isinstance(node.get("items"), dict):
        out["items"] = schema(node["items"])
    return out


def tools(folder):
    """Converts functions to `tools` of a chat request; dots in names become underscores, as the API requires."""
    rows = []
    for group, name in TOOL_GROUPS.items():
        for record in read_jsonl(folder / f"BFCL_v4_{name}.jsonl"):
            functions = [{"type": "function", "function": {
                "name": f["name"].replace(".", "_"), "description": f["description"],
                "parameters": schema(f["parameters"])}} for f in record["function"]]
            rows.append({"group": group, "messages": record["question"][0], "tools": functions})
    return jsonl(rows)


def packed(folder):
    """Returns the texts by name of the packed file."""
    return {
        "azure-code.csv.gz": azure(folder / "azure_llm_2023_code.csv"),
        "azure-conv.csv.gz": azure(folder / "azure_llm_2023_conv.csv"),
        "mooncake-conversation.jsonl.gz": mooncake(folder / "mooncake_conversation_trace.jsonl"),
        "mooncake-synthetic.jsonl.gz": mooncake(folder / "mooncake_synthetic_trace.jsonl"),
        "servegen-r1-lengths.jsonl.gz": servegen(folder / "servegen_deepseek-r1_chunk30_lengths.json"),
        "mt-bench.jsonl.gz": jsonl(r["turns"] for r in read_jsonl(folder / "mt_bench_question.jsonl")),
        "gsm8k.jsonl.gz": jsonl(r["question"] for r in read_jsonl(folder / "gsm8k_test.jsonl")),
        "bfcl.jsonl.gz": tools(folder),
        "tau-bench.jsonl.gz": tau_bench(folder / "tau_bench_retail_fewshot.jsonl"),
        "otel-agents.jsonl.gz": otel(folder),
        "shakespeare.txt.gz": (folder / "tinyshakespeare.txt").read_text(encoding="utf-8"),
    }


def main(folder, target=DATA):
    for name, text in packed(Path(folder)).items():
        data = gzip.compress(text.encode(), 9, mtime=0)
        (Path(target) / name).write_bytes(data)
        print(f"{len(data):>9} {name}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
