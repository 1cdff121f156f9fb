"""Writes the table of docs/quantized.md: size of each format, decoding speed as a share of the roof, loss of quality.

    python -m benchmarks.engine.formats [--measure [speed] [quality]] [--only NAME ...] [--windows N] [--tokens N]
                                 [--rounds N]

Without --measure the table is written again from the stored figures (benchmarks/data/formats.json); with --only the
speed of these encodings is measured, and other figures stay.

Speed: a matrix-vector product of a 1B model's two feed-forward shapes over 256 MB of them, on one thread, compared
with reading as much memory right before; the median round. Quality: the default model's weights in float32, rounded
element by element to the format, compared with the originals: the mean KL divergence over windows of Shakespeare.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from benchmarks.data.rounded import ROUNDED, round_to
from benchmarks.kernels.micro_kernels import WORKING_SET, Kernels
from benchmarks.peers.offline.machine_roof import MachineRoof

from drut import LLM
from drut.bench.workloads.packed import read_text
from drut.formats.encoding import W8A8, encoding
from drut.kernels.native.library import load
from drut.kernels.native.memory import reserve
from drut.machine import cpu_model, usable_cpus
from drut.model.convert import convert
from drut.model.model import open_model
from drut.model.store import resolve
from drut.observe.ledger import Bandwidth
from drut.plan.probe import NativeProbe
from drut.quality.calibration import calibration_sample
from drut.quality.likelihood import cut, measure, summary

ROOT = Path(__file__).parents[2]
FIGURES, PAGE = ROOT / "benchmarks" / "data" / "formats.json", ROOT / "docs" / "quantized.md"
SHAPES = ((8192, 2048), (2048, 8192))
SIDE = 4096  # of the matrix whose bytes are shown
SECONDS = 0.2  # for each shape in each round; the best of about eight passes counts, as for reading


class Row(NamedTuple):
    """A line of the page: name, source, encoding.

    `bits`: bits per weight in the file, if they differ from those of the encoding as stored here.
    """

    name: str
    source: str
    encoding: str
    bits: float | None = None


ROWS = (
    Row("F32", "GGUF", "F32"), Row("F16", "GGUF", "F16"),
    Row("BF16", "GGUF", "BF16"),
    *(Row(name, "GGUF", name) for name in (
        "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "MXFP4", "Q3_K", "Q2_K",
        "TQ2_0", "TQ1_0")),
    Row("AWQ, groups of 128", "safetensors", "int4z-g128-f16", 4 + 20 / 128),
    Row("GPTQ, groups of 128", "safetensors", "int4z-g128-f16", 4 + 20 / 128),
    Row("GPTQ, symmetric", "safetensors", "int4-g128-f16", 4 + 20 / 128),
    Row("W4A16, groups of 128", "compressed-tensors", "int4-g128-bf16"),
    Row("W4A16, groups of 64", "compressed-tensors", "int4-g64-f16"),
    Row("W4A16, groups of 32", "compressed-tensors", "int4-g32-f16"),
    Row("W4A16, a scale per row", "compressed-tensors", "int4-row-bf16"),
    Row("W8A8, W8A16", "compressed-tensors", W8A8.name),
    Row("FP8, a scale per row or tensor", "compressed-tensors, fbgemm, ModelOpt", "fp8-row-f32"),
    Row("FP8, blocks of 128", "compressed-tensors", "fp8-g128-f32", 8 + 32 / 128**2),
    Row("MXFP4", "gpt-oss, compressed-tensors", "MXFP4"),
    Row("NVFP4", "compressed-tensors, ModelOpt", "nvfp4"),
)
CONVERTED = ("BF16", "F16", W8A8.name, "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")

BEGIN, END = "<!-- formats: begin -->\n", "<!-- formats: end -->\n"


def speed(rounds: int, only: Sequence[str], known: dict[str, float]) -> dict[str, Any]:
    """Returns by encoding the share of the roof at one row on one thread, the median over rounds and shapes; `known`:
    earlier shares.

    Memory is read right before each measurement, because other tenants of a machine change its speed by the second.
    """
    kernels, roof = Kernels(), MachineRoof(1)
    isa = kernels.load(1, "auto")["isa"]
    roof.measure()
    best, memory = roof.peaks(False), _Memory()
    names = [name for name in dict.fromkeys(row.encoding for row in ROWS) if not only or name in only]
    shares: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        for n, k in SHAPES:
            kernels.prepare(name, n, k)
            for _ in range(rounds):
                now = replace(best, bandwidth=memory.read())
                found = kernels.gemm(name, n, k, 1, SECONDS)
                floor = now.floor_s(found["bytes"], found["macs"], found["working_set"])
                shares[name].append(floor / found["seconds"])
        print(f"{name} {statistics.median(shares[name]):.2f}", file=sys.stderr)
    return {"date": time.strftime("%Y-%m-%d"), "machine": cpu_model(), "isa": isa, "rounds": rounds,
            "shares": known | {name: statistics.median(each) for name, each in shares.items()}}


class _Memory:
    """The speed at which one thread reads as much memory as the kernels' weights take."""

    def __init__(self) -> None:
        library = load()
        assert library is not None, "the roof asked for it before"
        self._probe, self._buffer = NativeProbe(library, usable_cpus()[:1]), reserve(WORKING_SET, huge=True)
        self._probe.touch(self._buffer)

    def read(self) -> Bandwidth:
        """Returns bytes per second for any working set: the best of eight passes."""
        rate = 1e9 * self._probe.read(self._buffer, 1, 0)
        return lambda working_set: rate


def quality(windows: int, tokens: int) -> dict[str, Any]:
    """Returns by encoding the mean KL divergence and its interval, perplexity's increase, and agreement."""
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        files = open_model(resolve("smollm2-135m-instruct"))
        plain = Path(scratch) / "plain"
        convert(files, plain, "F32")
        files.close()
        with LLM(plain, kv_dtype="fp32") as llm:
            assert llm.tokenizer is not None
            ids = llm.tokenizer.encode(read_text("shakespeare.txt"), add_special=False)
            sample = calibration_sample(llm.tokenizer)
            rows = cut(ids, windows, tokens)
            reference = [llm.logits(row).copy() for row in rows]
        for name in (*CONVERTED, *ROUNDED):
            path = Path(scratch) / (name if name == W8A8.name else f"{name}.gguf")
            if name in ROUNDED:
                path = round_to(name, plain, Path(scratch) / name)
            else:
                files = open_model(plain)
                convert(files, path, name, sample)  # only W8A8 uses the sample
                files.close()
            with LLM(path, kv_dtype="fp32") as llm:
                pairs = zip(rows, reference, strict=True)
                found = summary([measure(llm.logits(row), theirs, row) for row, theirs in pairs], tokens)
            assert found.divergence is not None
            assert found.increase is not None
            assert found.agreement is not None
            kl = found.divergence
            out[name] = {"divergence": kl.value, "low": kl.low, "high": kl.high, "increase": found.increase.value,
                         "agreement": found.agreement.value}
            print(f"{name}: {out[name]}", file=sys.stderr)
    return {"model": "smollm2-135m-instruct", "windows": windows, "tokens": tokens, "formats": out}


def section(figures: dict[str, Any]) -> str:
    """Returns the generated part of the page; a dash stands for a figure that was not measured."""
    shares = figures.get("speed", {}).get("shares", {})
    costs = figures.get("quality", {}).get("formats", {})
    lines = []
    for row in ROWS:
        stored = row.bits / 8 if row.bits else encoding(row.encoding).row_bytes(SIDE) / SIDE
        cost = costs.get(row.encoding)
        name = row.name if row.source in ("GGUF", "safetensors") else f"{row.name} ({row.source})"
        lines.append([name, f"{stored:.4g}",
                      f"{shares[row.encoding]:.0%}" if row.encoding in shares else "–",
                      f"{cost['divergence']:.2g}" if cost else "–", f"{cost['agreement']:.1%}" if cost else "–"])
    heads = ["format", "bytes a weight", "of the roof", "KL, nats", "same token"]
    table = "\n".join(" | ".join(cells) for cells in (heads, ["---"] * len(heads), *lines))
    return "\n".join([*_notes(figures), table, ""])


def _notes(figures: dict[str, Any]) -> list[str]:
    """Returns paragraphs that describe the figures."""
    text = []
    if "speed" in figures:
        s = figures["speed"]
        text.append("Of the roof: the speed of one row against 256 MB of matrices, relative to reading as much memory; "
                    f"one thread, {s['machine']}, {s['isa']}, median of {s['rounds']} rounds, "
                    f"{s['date']}, `python -m benchmarks.engine.formats --measure speed`.")
    if "quality" in figures:
        q = figures["quality"]
        widths = [(f["high"] - f["low"]) / 2 / f["divergence"] for f in q["formats"].values() if f["low"] is not None]
        about = f", plus or minus {statistics.median(widths):.0%} at 95 % confidence" if widths else ""
        text.append(f"KL and same token: {q['model']}, rounded to the format (W8A8 smoothed) and compared with the "
                    f"original over {q['windows']} windows of {q['tokens']} tokens{about}. Larger "
                    "models lose less. The original is a Q4_1 file, which favours Q4_1 over Q5_1.")
    return [fill(paragraph, 120, break_on_hyphens=False) + "\n" for paragraph in [*text, "A dash: not measured."]]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=("speed", "quality"), default=[])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="encodings to measure")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of the speed of each shape (default: 9)")
    args = parser.parse_args(argv)
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if "speed" in args.measure:
        known = figures.get("speed", {}).get("shares", {}) if args.only else {}
        figures["speed"] = speed(args.rounds, args.only, known)
    if "quality" in args.measure:
        figures["quality"] = quality(args.windows, args.tokens)
    if args.measure:
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(head + BEGIN + section(figures) + END + rest.partition(END)[2], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
