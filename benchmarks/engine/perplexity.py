"""Perplexity on 16 windows of 512 WikiText-2 tokens: the cost of the file's quantized arithmetic.

    python -m benchmarks.engine.perplexity [MODEL.gguf] [--threads N] [--json]

Four columns: Drut on the file as it is (integer kernels) with a bf16 and with an int8 cache, Drut on its weights
dequantized to fp32 with an fp32 cache, and what transformers computed from the same fp32 weights
(tests/golden/make_smollm2.py stores it). Exit code 1 if the first differs by more than 0.75 % from the last, or the
int8 cache costs more than another 0.75 %. MODEL must be the file of the stored reference.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
from tests.golden.dequantize import dequantize
from tests.golden.windows import ids_digest, mean_nll, windows

from drut import LLM
from drut.model.store import resolve

REFERENCE = Path(__file__).parents[2] / "tests" / "golden" / "smollm2_nll.json"
AS_SHIPPED, INT8, FP32, TRANSFORMERS = "drut as shipped", "drut, int8 cache", "drut fp32", "transformers fp32"
LIMIT = 0.0075


def nlls(llm: LLM, rows: list[list[int]]) -> list[float]:
    """Returns the mean negative log-likelihood of each window, in nats per token."""
    return [mean_nll(llm.logits(row, chunk=len(row)), row) for row in rows]


def perplexity(values: list[float]) -> float:
    return math.exp(np.mean(values))


def print_table(columns: dict[str, list[float]]) -> None:
    """Prints a line for each window and the perplexity of all, with the difference from the reference's."""
    print("window" + "".join(f"{name:>24}" for name in columns))
    for i, row in enumerate(zip(*columns.values(), strict=True)):
        print(f"{i:>6}" + "".join(f"{math.exp(value):>24.4f}" for value in row))
    base = perplexity(columns[TRANSFORMERS])
    totals = [f"{perplexity(v):.4f} ({perplexity(v) / base - 1:+.3%})" for v in columns.values()]
    print("   all" + "".join(f"{total:>24}" for total in totals))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct", help="known name or GGUF file")
    parser.add_argument("--threads", type=int, help="worker threads (default: the CPUs this process may use)")
    parser.add_argument("--json", action="store_true", help="print each window's likelihood as JSON")
    args = parser.parse_args()
    path, stored = resolve(args.model), json.loads(REFERENCE.read_text())
    with LLM(path, threads=args.threads) as llm:
        assert llm.tokenizer is not None
        rows = windows(llm.tokenizer.encode)
        if ids_digest(rows) != stored["ids_sha256"]:
            raise SystemExit(f"{path.name}: its token ids are not those of the stored reference")
        columns = {AS_SHIPPED: nlls(llm, rows)}
    with LLM(path, threads=args.threads, kv_dtype="int8") as llm:
        columns[INT8] = nlls(llm, rows)
    with tempfile.TemporaryDirectory() as scratch:
        fp32 = dequantize(path, Path(scratch))
        with LLM(fp32, threads=args.threads, kv_dtype="fp32") as llm:
            columns[FP32] = nlls(llm, rows)
    columns[TRANSFORMERS] = stored["nll"]
    if args.json:
        print(json.dumps({"nll": columns, "perplexity": {k: perplexity(v) for k, v in columns.items()}}))
    else:
        print_table(columns)
    pairs = ((AS_SHIPPED, TRANSFORMERS), (INT8, AS_SHIPPED))
    return int(any(abs(perplexity(columns[a]) / perplexity(columns[b]) - 1) > LIMIT for a, b in pairs))


if __name__ == "__main__":
    sys.exit(main())
