"""References for smollm2-135m-instruct, computed by `transformers` in fp32 on the dequantized weights.

    python tests/golden/make_smollm2.py MODEL.gguf --write   write the two files below
    python tests/golden/make_smollm2.py MODEL.gguf --check   recompute, compare; exit code 1 if they differ

smollm2.npz       a 64-token prompt: the best id at each position, fp32 logits of the last four (2048 ids)
smollm2_nll.json  mean negative log-likelihood (nats a token) of each of 16 windows of 512 WikiText-2 tokens

Needs torch, transformers and gguf; what it writes is read without them.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.golden.dequantize import dequantize
from tests.golden.make import differences, load, logits
from tests.golden.weights import HERE, raw_stream
from tests.golden.windows import ids_digest, mean_nll, windows

COLUMNS = 2048
PROMPT_WINDOW, PROMPT_TOKENS, KEPT = 7, 64, 4


def prompt_reference(model: torch.nn.Module, ids: list[int]) -> dict[str, np.ndarray]:
    """What smollm2.npz holds, of the prompt `ids`."""
    full = logits(model, ids)
    raw = raw_stream("smollm2", "columns").random_raw(full.shape[1])
    columns = np.sort(np.argsort(raw, kind="stable")[:COLUMNS])
    return {
        "ids": np.array(ids, np.int32),
        "best_ids": full.argmax(axis=1).astype(np.int32),
        "columns": columns.astype(np.int32),
        "logits": full[-KEPT:, columns],
    }


def nll_reference(model: torch.nn.Module, rows: list[list[int]]) -> dict[str, object]:
    """What smollm2_nll.json holds, of the windows `rows`."""
    return {
        "nll": [round(mean_nll(logits(model, row), row), 7) for row in rows],
        "ids_sha256": ids_digest(rows),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the model's GGUF file")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write the references")
    mode.add_argument("--check", action="store_true", help="compare with the committed ones")
    args = parser.parse_args()
    transformers.logging.disable_progress_bar()
    npz, nll = HERE / "smollm2.npz", HERE / "smollm2_nll.json"
    with tempfile.TemporaryDirectory() as scratch:
        directory = dequantize(args.model, Path(scratch) / "smollm2")
        encoder = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        model, rows = load(directory), windows(lambda text: encoder.encode(text).ids)
        entry = prompt_reference(model, rows[PROMPT_WINDOW][:PROMPT_TOKENS])
        record = nll_reference(model, rows)
    print(f"perplexity {np.exp(np.mean(record['nll'])):.4f}")
    if args.write:
        np.savez_compressed(npz, **entry)
        nll.write_text(json.dumps(record, indent=1) + "\n")
        return 0
    stored = json.loads(nll.read_text())
    with np.load(npz) as committed:
        lines = differences(entry, dict(committed))
    if record["ids_sha256"] != stored["ids_sha256"]:
        lines.append("the windows' token ids differ")
    if not np.allclose(record["nll"], stored["nll"], rtol=1e-5, atol=0):
        lines.append("a window's negative log-likelihood differs")
    print("\n".join(lines or ["as committed"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
