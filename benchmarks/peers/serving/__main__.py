"""Compares Drut with other serving engines over HTTP: makes missing files, measures, writes docs/comparison.md and
.html.

    python -m benchmarks.peers.serving [NAME ...] [--document-only]

A NAME is a file of settings in this folder. Engines come from `make peers` (missing ones are named and left out), model
files from `benchmarks.peers.files`; results are stored under build/comparison/NAME, and unfinished ones are continued.
The page contains all results.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from benchmarks.peers.environment import ROOT

from drut.bench.compare.files import NAME, load
from drut.bench.compare.schema import Comparison
from drut.bench.compare.summary import summary
from drut.home import home

HERE = Path(__file__).parent
RESULTS = ROOT / "build" / "comparison"
PAGE = ROOT / "docs" / "comparison.md"
CHECKOUT = r"(?<![\w./])/(?:[\w.+-]+/)+?(?=(?:src/drut|build/compare|build/peers)/)"
CONFIGS = {path.stem: path for path in sorted(HERE.glob("*.toml"))}
REMARKS = {
    "sglang": "- **SGLang runs its reference path** (`torch_native`): its fast CPU kernels need AMX and a build of "
              "their own.\n",
    "mlx": "- **MLX** is made for Apple's GPUs; on this CPU it reads fp32, with OpenBLAS in place of what it brings.\n",
    "vllm": "- **vLLM, SGLang and MLX** read bf16 and fp32 here.\n"}
TITLES = {"smollm2": "SmolLM2-135M", "slow": "SmolLM2-135M: SGLang and MLX",
          "llama-1b": "A shape of 1.1 G weights", "llama-1b-slow": "A shape of 1.1 G weights: vLLM, SGLang and MLX"}

HEAD = """# Serving engines compared

Written by `make comparison` (`python -m benchmarks.peers.serving`), which measures, or continues a measurement; do not
edit. The same as a page with plots: [comparison.html](comparison.html). [How engines are compared](compare.md);
[how each is started](engines.md). Engines without a server are compared in [benchmarks.md](benchmarks.md).

- Every engine runs at the best CPU configuration found for it, on both CPUs, from the same weights in the format that
  suits it: 8 bits for Drut (GGUF Q8_0), llama.cpp (the same file) and OpenVINO (int8), bf16 where an engine has nothing
  quicker for this CPU. So a ratio compares what a user gets, not the same bytes.
- **OpenVINO GenAI has no server of its own**: an HTTP wrapper of this project serves it.
- TensorRT-LLM, LMDeploy and Ollama do not run here; their launchers are unverified ([engines.md](engines.md)).
"""


def measure(name: str) -> bool:
    """Starts or continues one comparison. Returns False after a failure, whose reason is printed."""
    config, folder = CONFIGS[name], RESULTS / name
    wanted = tomllib.loads(config.read_text())
    files = ROOT / wanted["model_files"]
    if not files.exists() and _python("-m", "benchmarks.peers.files", files.stem):
        return False
    if (folder / NAME).exists():
        asked = ["--resume", str(folder), "--rounds", str(wanted["rounds"])]
    else:
        asked = ["--config", str(config), "--out", str(folder)]
    return _python("-m", "drut", "bench", "compare", *asked) == 0


def document(found: dict[str, Comparison]) -> str:
    """Returns the page: each comparison's summary under a heading of its own."""
    engines = {c.engine for one in found.values() for c in one.contestants if c.outcome == "measured"}
    parts = [HEAD + "".join(text for engine, text in REMARKS.items() if engine in engines)]
    for name, one in found.items():
        text = re.sub(r"^#+ ", lambda match: "#" + match[0], summary(one), flags=re.M)
        _, _, rest = text.partition("\n")
        parts.append(f"## {TITLES.get(name, name)}\n{rest}\n")
    return "\n".join(parts)


def _without_paths(page: str) -> str:
    """Replaces the paths of this checkout in commands by relative ones."""
    page = page.replace(f"{ROOT}/", "").replace(f"{home()}/", "$DRUT_HOME/").replace(sys.executable, "python")
    return re.sub(CHECKOUT, "", page)


def _python(*words: str) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT),
                                                                             os.environ.get("PYTHONPATH", "")]))}
    environment.pop("OPENBLAS_CORETYPE", None)
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=environment).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.serving", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"comparisons (default: all of {', '.join(CONFIGS)})")
    parser.add_argument("--document-only", action="store_true", help="only write the page")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in CONFIGS]:
        parser.error(f"unknown comparison:  {', '.join(unknown)}")
    ended = [True] if args.document_only else [measure(name) for name in args.names or CONFIGS]
    found = {name: load(RESULTS / name) for name in TITLES if (RESULTS / name / NAME).exists()}
    PAGE.write_text(document(found))
    if found:
        report = RESULTS / "report.html"
        _python("-m", "drut", "bench", "report", *(str(RESULTS / name) for name in found), "--out", str(report))
        PAGE.with_suffix(".html").write_text(_without_paths(report.read_text()))
    print(f"{PAGE.relative_to(ROOT)}: {len(found)} comparisons")
    return int(not all(ended))


if __name__ == "__main__":
    sys.exit(main())
