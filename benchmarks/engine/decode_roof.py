"""The decoding speed of a whole model as a share of the machine's roof, for one sequence, by format of its weights.

    python -m benchmarks.engine.decode_roof FOLDER [FORMAT ...] [--tokenizer FOLDER] [--rounds N] [--threads N] [--json]

The shape is that of Llama 3.2 1B with random weights; files missing in FOLDER are created. All models stay loaded, and
in each round each takes a turn of TOKENS steps, in reverse order every second round. Before and after each turn all
threads read as many bytes as a step needs and do nothing else: the faster of the two is that turn's roof. The share is
the ledger's bytes of the steps over their time, over the roof. AWQ has its head, a third of all its bytes, in fp16.
Exit code 1 if a median share is below MIN.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.data.random_gguf import SHAPES
from benchmarks.data.random_gguf import write as write_gguf
from benchmarks.machine_load import OthersLoad
from benchmarks.peers.random_checkpoint import write as write_checkpoint
from benchmarks.report import Spread, about, others, table, to_json

from drut import LLM, SamplingParams
from drut.kernels.native.library import load
from drut.kernels.native.memory import reserve
from drut.kernels.ops import StepShape
from drut.machine import usable_cpus
from drut.plan.probe import NativeProbe

FORMATS = ("Q4_K", "Q6_K", "Q8_0", "MXFP4", "BF16", "awq")
TOKENS, SETTLED, PROMPT, READ_S = 64, 4, 16, 0.15  # tokens, tokens, tokens, seconds
MIN = 0.70
Record = dict[str, Any]


def made(folder: Path, form: str, like: Path | None) -> Path:
    """Returns the model in a format, created if missing. `like`: a folder in the Hugging Face layout whose tokenizer a
    checkpoint gets."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (f"llama-1b-{form}" if form == "awq" else f"llama-1b-{form}.gguf")
    if not path.exists():
        print(f"making {path.name}", file=sys.stderr, flush=True)
        if form != "awq":
            write_gguf(replace(SHAPES["llama-1b"], matrices=form), path)
        elif like is not None:
            write_checkpoint(path, like, as_awq=True)
        else:
            raise SystemExit("awq: --tokenizer names a folder with config.json and tokenizer.json")
    return path


class Turn:
    """One loaded model, and memory to read for comparison."""

    def __init__(self, path: Path, threads: int, probe: NativeProbe, memory: np.ndarray) -> None:
        self.llm = LLM(str(path), threads=threads, kv_cache_gb=0.1, prefix_cache=False)
        self._probe, self._memory, self._threads = probe, memory, threads
        self._rng = np.random.default_rng(1)

    def run(self) -> Record:
        """Returns milliseconds and gigabytes per token, GB/s of reading, and the share."""
        before = self._read()
        seconds = self._decode()
        roof = max(before, self._read())
        return {"ms": seconds * 1e3, "gb": self._nbytes / 1e9, "roof": roof,
                "share": self._nbytes / seconds / 1e9 / roof}

    @property
    def _nbytes(self) -> int:
        """Returns the bytes of a step of one token in the middle of the turn, by the ledger."""
        context = PROMPT + TOKENS // 2
        return self.llm.engine.runner.plan.cost(StepShape(1, 1, context, context)).bytes

    def _read(self) -> float:
        return self._probe.read(self._memory[: self._nbytes // 256 * 256], self._threads, READ_S)

    def _decode(self) -> float:
        """Returns seconds per token, after the first few tokens."""
        engine, vocab = self.llm.engine, self.llm.files.spec.vocab
        params = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True)
        request = self.llm.submit(self._rng.integers(0, vocab, PROMPT).tolist(), params)[0].request
        while engine.busy and len(request.output_ids) < SETTLED:
            engine.step()
        began, first = time.perf_counter(), len(request.output_ids)
        while engine.busy:
            engine.step()
        assert len(request.output_ids) == TOKENS, request.finish_reason
        return (time.perf_counter() - began) / (TOKENS - first)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"default: {' '.join(FORMATS)}")
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER",
                        help="folder with the tokenizer for a new AWQ checkpoint")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(usable_cpus()))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    forms = args.formats or list(FORMATS)
    paths = {form: made(args.folder, form, args.tokenizer) for form in forms}
    probe, memory = NativeProbe(load(), usable_cpus()), reserve(3 << 30, huge=True)
    probe.touch(memory)
    turns = {form: Turn(path, args.threads, probe, memory) for form, path in paths.items()}
    for turn in turns.values():
        turn.run()
    rounds: list[Record] = []
    for number in range(args.rounds):
        load_of_others = OthersLoad(())
        order = forms if number % 2 == 0 else forms[::-1]
        rounds.append({form: turns[form].run() for form in order} | {"others_cpus": load_of_others.cpus()})
    engine = about(next(iter(turns.values())).llm)
    spreads = {form: {key: Spread.of([r[form][key] for r in rounds]) for key in rounds[0][form]} for form in forms}
    if args.json:
        print(to_json(engine=engine, rounds=rounds, summary=spreads))
    else:
        print(f"{engine}; {args.threads} threads, {args.rounds} rounds; {others(rounds)}")
        print(table(["format", "GB per step", "ms", "GB/s reading", "share, %"],
                    [[form, f"{of['gb'].median:.2f}", of["ms"].text(1), of["roof"].text(1), of["share"].text(0, 100)]
                     for form, of in spreads.items()]))
    return int(any(of["share"].median < MIN for of in spreads.values()))


if __name__ == "__main__":
    sys.exit(main())
