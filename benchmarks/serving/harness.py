"""Runs lm-evaluation-harness against `drut serve`: scores must be equal to the last digit at every batch size.

    python -m benchmarks.serving.harness --install                 # once; it goes into an environment of its own
    python -m benchmarks.serving.harness [MODEL.gguf] [--batches 1 16]

Three small tasks over texts in the repository, through its model `local-completions`: a choice among four continuations
of a WikiText passage, by likelihood; the perplexity of passages; continuations of lines of Shakespeare, scored by chrF.
The harness sends token ids and requests echo and logprobs; a batch is one request with that many prompts, which the
engine computes together. Each run has a server of its own, so that no cache helps. Exit code 1 if a score, or the
server's part of any sample, differs between the batches in any bit.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.report import table
from benchmarks.serving.clients import ROOT, packaged
from benchmarks.serving.server import served

from drut.model.store import resolve
from drut.model.tokenizer import open_tokenizer

VENV = ROOT / "lm-eval"
PACKAGES = ("lm-eval[api]==0.4.13", "transformers")
WIKITEXT = Path(__file__).parents[1] / "data" / "wikitext2_test_head.txt"
SAMPLES, WORDS, CHOICES = 48, 40, 4
TASKS: dict[str, dict[str, Any]] = {
    "drut_choice": {"output_type": "multiple_choice", "doc_to_text": "{{text}}", "doc_to_choice": "{{choices}}",
                    "doc_to_target": "{{label}}", "target_delimiter": " ",
                    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]},
    "drut_perplexity": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
                        "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}]},
    "drut_lines": {"output_type": "generate_until", "doc_to_text": "{{text}}", "doc_to_target": "{{target}}",
                   "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 32, "temperature": 0},
                   "metric_list": [{"metric": "chrf"}]},
}


def choices(dice: random.Random) -> list[dict[str, Any]]:
    """Returns passages, each with its continuation and three others."""
    words = WIKITEXT.read_text().split()
    starts = dice.sample(range(0, len(words) - 2 * WORDS), SAMPLES + CHOICES)
    ends = [" ".join(words[at + WORDS : at + WORDS + 8]) for at in starts]
    docs = []
    for i, at in enumerate(starts[:SAMPLES]):
        label = dice.randrange(CHOICES)
        others = [ends[j] for j in dice.sample([j for j in range(len(ends)) if j != i], CHOICES - 1)]
        docs.append({"text": " ".join(words[at : at + WORDS]), "label": label,
                     "choices": [*others[:label], ends[i], *others[label:]]})
    return docs


def passages(dice: random.Random) -> list[dict[str, Any]]:
    words = WIKITEXT.read_text().split()
    lengths = [dice.randrange(5, 120) for _ in range(SAMPLES)]
    return [{"text": " ".join(words[at : at + n])} for n in lengths for at in [dice.randrange(len(words) - n)]]


def lines(dice: random.Random) -> list[dict[str, Any]]:
    data = resources.files("drut.bench.workloads") / "data" / "shakespeare.txt.gz"
    text = gzip.decompress(data.read_bytes()).decode().splitlines()
    starts = dice.sample(range(len(text) - 20), SAMPLES)
    return [{"text": "\n".join(text[at : at + n]) + "\n", "target": "\n".join(text[at + n : at + n + 2])}
            for at in starts for n in [dice.randrange(1, 12)]]


DOCS: dict[str, Callable[[random.Random], list[dict[str, Any]]]] = {
    "drut_choice": choices, "drut_perplexity": passages, "drut_lines": lines}


def write_tasks(folder: Path) -> None:
    """Writes tasks in the harness's format: JSON is YAML."""
    for name, task in TASKS.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS[name](random.Random(name))))
        whole = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}},
                 "test_split": "test", **task}
        (folder / f"{name}.yaml").write_text(json.dumps(whole))


def write_tokenizer(model: Path, folder: Path) -> None:
    """Writes the model's tokenizer in the format of transformers."""
    tokenizer = open_tokenizer(model)
    (folder / "tokenizer.json").write_text(tokenizer.to_json())
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": tokenizer.bos_token,
              "eos_token": tokenizer.eos_token}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def evaluate(python: Path, model: Path, batch: int, folder: Path) -> dict[str, Any]:
    """Returns scores by task, and the server's part of each sample."""
    out = folder / f"batch-{batch}"
    with served(str(model)) as server:
        arguments = {"model": server.model, "base_url": f"{server.url}/v1/completions", "tokenizer": folder,
                     "tokenizer_backend": "huggingface", "tokenized_requests": True, "max_length": 1024}
        command = [python, "-m", "lm_eval", "run", "--model", "local-completions", "--tasks", ",".join(TASKS),
                   "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()),
                   "--include_path", folder, "--output_path", out, "--log_samples", "--batch_size", str(batch)]
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
        began = time.monotonic()
        with (folder / "log").open("w+") as log:
            done = subprocess.run([str(part) for part in command], env=os.environ | offline, stdout=log, stderr=log)
            if done.returncode:
                log.seek(0)
                raise SystemExit(f"lm_eval ended with {done.returncode}\n{log.read()[-3000:]}")
        seconds = time.monotonic() - began
    (result,) = out.rglob("results_*.json")
    scores = {name: {key: value for key, value in figures.items() if isinstance(value, float)}
              for name, figures in json.loads(result.read_text())["results"].items()}
    samples = {name: replies(next(out.rglob(f"samples_{name}_*.jsonl"))) for name in TASKS}
    return {"batch": batch, "seconds": seconds, "scores": scores, "samples": samples}


def replies(path: Path) -> list[Any]:
    """Returns the server's part of each sample, in order."""
    rows = sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda row: row["doc_id"])
    return [row["resps"] for row in rows]


def install() -> None:
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    subprocess.run(["nice", "-n", "19", VENV / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)


def compare(runs: Sequence[dict[str, Any]]) -> bool:
    """Prints the scores; returns whether all runs agree in every bit."""
    first, agree = runs[0], True
    rows = []
    for task, figures in first["scores"].items():
        for metric in figures:
            values = [run["scores"][task][metric] for run in runs]
            same = all(value == values[0] for value in values)
            rows.append([task, metric.removesuffix(",none"), *map(repr, values), "yes" if same else "NO"])
            agree &= same
    print(table(["task", "score", *(f"batch {run['batch']}" for run in runs), "equal"], rows))
    for task, samples in first["samples"].items():
        differ = sum(any(run["samples"][task][i] != sample for run in runs) for i, sample in enumerate(samples))
        print(f"{task}: {len(samples)} samples, {differ} of them differ")
        agree &= not differ
    return agree


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct", help="known name or GGUF file")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16], help="prompts per request")
    parser.add_argument("--venv", type=Path, default=VENV, help=f"an environment with the harness (default: {VENV})")
    parser.add_argument("--install", action="store_true", help="only install that environment")
    args = parser.parse_args()
    if args.install:
        install()
        return 0
    python = args.venv.absolute() / "bin" / "python"
    print(packaged("lm_eval")(python))
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), resolve(args.model)
        write_tasks(folder)
        write_tokenizer(model, folder)
        runs = [evaluate(python, model, batch, folder) for batch in args.batches]
    print("; ".join(f"batch {run['batch']}: {run['seconds']:.0f} s" for run in runs))
    return int(not compare(runs))


if __name__ == "__main__":
    sys.exit(main())
