"""Writes docs/formats.md: the size of each format, its decoding speed as a share of the roof, and its loss of quality.

    python -m benchmarks.engine.formats [--measure [speed] [quality]] [--only NAME ...] [--windows N] [--tokens N]
                                 [--rounds N]

Without --measure the page is written again from the stored figures (benchmarks/data/formats.json); with --only the
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
from drut.formats.encoding import encoding
from drut.kernels.native.backend import NativeBackend
from drut.kernels.native.library import load
from drut.kernels.native.memory import reserve
from drut.machine import cpu_model, usable_cpus
from drut.model.convert import convert
from drut.model.model import open_model
from drut.model.store import resolve
from drut.observe.ledger import Bandwidth
from drut.plan.probe import NativeProbe
from drut.quality.likelihood import cut, measure, summary

ROOT = Path(__file__).parents[2]
FIGURES, PAGE = ROOT / "benchmarks" / "data" / "formats.json", ROOT / "docs" / "formats.md"
SHAPES = ((8192, 2048), (2048, 8192))
SIDE = 4096  # of the matrix whose bytes are shown
SECONDS = 0.2  # for each shape in each round; the best of about eight passes counts, as for reading
BY_GGUF, BY_PACKAGE, BY_DEFINITION = "`gguf`, bit for bit", "`compressed-tensors`, bit for bit", "definition"


class Row(NamedTuple):
    """A line of the page: name, source, encoding, and what verifies its decoding.

    `bits`: bits per weight in the file, if they differ from those of the encoding as stored here.
    """

    name: str
    source: str
    encoding: str
    check: str
    bits: float | None = None


ROWS = (
    Row("F32", "GGUF, safetensors", "F32", BY_GGUF), Row("F16", "GGUF, safetensors", "F16", BY_GGUF),
    Row("BF16", "GGUF, safetensors", "BF16", BY_GGUF),
    *(Row(name, "GGUF", name, BY_GGUF) for name in (
        "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "MXFP4", "Q3_K", "Q2_K",
        "TQ2_0", "TQ1_0")),
    Row("AWQ, groups of 128", "safetensors", "int4z-g128-f16", BY_DEFINITION, 4 + 20 / 128),
    Row("GPTQ, groups of 128", "safetensors", "int4z-g128-f16", BY_DEFINITION, 4 + 20 / 128),
    Row("GPTQ, symmetric", "safetensors", "int4-g128-f16", BY_DEFINITION, 4 + 20 / 128),
    Row("W4A16, groups of 128", "compressed-tensors", "int4-g128-bf16", BY_PACKAGE),
    Row("W4A16, groups of 64", "compressed-tensors", "int4-g64-f16", BY_PACKAGE),
    Row("W4A16, groups of 32", "compressed-tensors", "int4-g32-f16", BY_PACKAGE),
    Row("W4A16, a scale per row", "compressed-tensors", "int4-row-bf16", BY_PACKAGE),
    Row("W8A8, W8A16, a scale per row", "compressed-tensors", "int8-row-f32", BY_PACKAGE),
    Row("FP8, a scale per row or tensor", "compressed-tensors, fbgemm, ModelOpt, `fp8`", "fp8-row-f32", BY_PACKAGE),
    Row("FP8, blocks of 128", "compressed-tensors, `fp8`", "fp8-g128-f32", BY_PACKAGE, 8 + 32 / 128**2),
    Row("MXFP4", "gpt-oss, compressed-tensors", "MXFP4", BY_PACKAGE),
    Row("NVFP4", "compressed-tensors, ModelOpt", "nvfp4", "`compressed-tensors`, to 2⁻²²"),
)
CONVERTED = ("BF16", "F16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")

HEAD = """# Formats

Written by `python -m benchmarks.engine.formats`; a test holds the list against the code.

A format is a record of the meaning of its codes (`formats/encoding.py`) and one rule that decodes it
(`formats/decode.py`, `formats/planes.py`); model code sees neither. Formats of safetensors keep codes, scales and zero
points in separate tensors; `model/weights/quantized/` (one file per format) combines a row of each. Integer codes are
multiplied with int8 activations in groups of 32, float codes with floats ([numerics.md](numerics.md)).
"""
TAIL = """
## Supported

- **GGUF**: the encodings above, in any mix; models in parts (`NAME-00001-of-0000N.gguf`, give the first).
- **AWQ**: 4 bits, `gemm` layout, with zero points; groups of any multiple of 32, or a row.
- **GPTQ**: 4 and 8 bits, `gptq` (zero points stored minus one) and `gptq_v2`, symmetric or not; reordered columns
  (`desc_act`), but not in experts; layers that read the same activations are fused where they are reordered alike.
- **compressed-tensors**: `pack-quantized` (4 and 8 bits, symmetric or not, groups or rows), `int-quantized`,
  `float-quantized`, `naive-quantized`, `nvfp4-pack-quantized`, `mxfp4-pack-quantized`.
- **FP8**: E4M3, a scale for the tensor, each row, or each block; `fp8`, `fbgemm_fp8` and ModelOpt's `FP8`.
- **FP4**: NVFP4 (compressed-tensors, ModelOpt), MXFP4 (gpt-oss, compressed-tensors).

A file's settings for activations (static scales, W8A8, W4A4) are not used. Integer weights take int8 activations with a
dynamic scale for each row and group of 32: finer than a scale per tensor or row. FP8 weights take float32 activations.
Both are closer to the model before quantization than the file's settings, and give other bits.

Layers are recognized by their tensors; `quantization_config` must agree, and the type and shape of each part are
checked. A scale that is infinite or not a number is an error that names the tensor.

Refused by name: other methods (bitsandbytes, HQQ, AQLM, torchao, AutoRound and the rest), GPTQ of 2 and 3 bits and its
`dynamic` rules, AWQ's `gemv` and `marlin` layouts, 2:4 sparsity, rotated activations (`transform_config`), E5M2, groups
or rows that are not multiples of 32, and GGUF's IQ1 to IQ3.

## Checks

"Bit for bit" is against the package's own decoder: `gguf` in every test run, `compressed-tensors` by golden weights
that it packed and decoded (`tests/golden/make_quantized.py`). "Definition": no package was available that decodes these
on a CPU; a second decoder in the tests, written element by element from the published layout, checks them. NVFP4
differs in the last bits because compressed-tensors divides by a float and Drut multiplies by its reciprocal.
"""


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
                sizes = (int(found[key]) for key in ("bytes", "macs", "float_macs", "working_set"))
                shares[name].append(now.floor_s(*sizes) / found["seconds"])
        print(f"{name} {statistics.median(shares[name]):.2f}", file=sys.stderr)
    return {"machine": cpu_model(), "isa": isa, "rounds": rounds,
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
            rows = cut(ids, windows, tokens)
            reference = [llm.logits(row).copy() for row in rows]
        for name in (*CONVERTED, *ROUNDED):
            path = Path(scratch) / f"{name}.gguf"
            if name in ROUNDED:
                path = round_to(name, plain, Path(scratch) / name)
            else:
                files = open_model(plain)
                convert(files, path, name)
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


def page(figures: dict[str, Any]) -> str:
    """Returns the whole page; a dash stands for a figure that was not measured."""
    backend = NativeBackend(1)
    shares = figures.get("speed", {}).get("shares", {})
    costs = figures.get("quality", {}).get("formats", {})
    lines = []
    for row in ROWS:
        enc = encoding(row.encoding)
        stored = row.bits / 8 if row.bits else enc.row_bytes(SIDE) / SIDE
        packed = backend.packed_bytes(enc, SIDE, SIDE) / SIDE**2 / stored
        cost = costs.get(row.encoding)
        lines.append([row.name, row.source, f"`{row.encoding}`", f"{stored:.4g}", f"{packed:.3f}",
                      f"{shares[row.encoding]:.0%}" if row.encoding in shares else "–",
                      f"{cost['divergence']:.2g}" if cost else "–",
                      f"{cost['agreement']:.1%}" if cost else "–", row.check])
    backend.close()
    heads = ["format", "in", "encoding", "bytes a weight", "packed / file", "of the roof", "KL, nats", "same token",
             "decoding checked by"]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))
    return "\n".join([HEAD, *_notes(figures), table, TAIL])


def _notes(figures: dict[str, Any]) -> list[str]:
    """Returns paragraphs that describe the figures."""
    text = []
    if "speed" in figures:
        s = figures["speed"]
        text.append(f"Of the roof: one row against a 1B model's feed-forward matrices on one thread, {s['machine']}, "
                    f"{s['isa']}, median of {s['rounds']} rounds, over 256 MB of them, compared with reading as "
                    "much memory right before; bytes are those of the file. A few percent past 100 are noise.")
    if "quality" in figures:
        q = figures["quality"]
        widths = [(f["high"] - f["low"]) / 2 / f["divergence"] for f in q["formats"].values() if f["low"] is not None]
        about = f", plus or minus {statistics.median(widths):.0%} at 95 % confidence" if widths else ""
        text.append(f"KL and same token: {q['model']} in float32 rounded element by element to the format, compared "
                    f"with the original, over {q['windows']} windows of {q['tokens']} tokens{about}. So small a model "
                    "suffers more than large ones, and what calibration (AWQ, GPTQ, imatrix) gains does not show. Its "
                    "float32 weights come from a Q4_1 file: Q4_1 nearly keeps them, and the finer grid of Q5_1 misses "
                    "them all to one side.")
    return [fill(paragraph, 120) + "\n" for paragraph in [*text, "A dash: not measured."]]


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
    PAGE.write_text(page(figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
