"""Compares Drut with other serving engines over HTTP: makes missing files, measures, writes docs/comparison.md.

    python -m benchmarks.peers.serving [NAME ...] [--document-only]

A NAME is a file of settings in this folder. Engines come from `make peers` (missing ones are named and left out), model
files from `benchmarks.peers.files`. Whole results are under build/comparison/NAME, and unfinished ones are continued;
build/comparison/report.html has their plots. What the page needs is stored under docs/results/, which is committed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
from benchmarks.peers.environment import ROOT
from benchmarks.peers.serving.document import TITLES, chart, document, slim

from drut.bench.compare.files import NAME, load
from drut.bench.compare.schema import SCHEMA, Comparison
from drut.bench.files import read_file
from drut.home import home

HERE = Path(__file__).parent
RESULTS = ROOT / "build" / "comparison"
PAGE, STORED = ROOT / "docs" / "comparison.md", ROOT / "docs" / "results"
CHECKOUT = r"(?<![\w./])/(?:[\w.+-]+/)+?(?=(?:src/drut|build/compare|build/peers)/)"
CONFIGS = {path.stem: path for path in sorted(HERE.glob("*.toml"))}

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


def store(name: str) -> None:
    """Stores a comparison under docs/results/, for the page."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    text = msgspec.json.encode(slim(load(RESULTS / name), commit)).decode()
    STORED.mkdir(exist_ok=True)
    stored(name).write_text(_without_paths(text) + "\n")


def stored(name: str) -> Path:
    """Returns the file of a stored comparison."""
    return STORED / f"comparison-{name}.json"


def write_page() -> int:
    """Writes the page and its chart from the stored comparisons; returns their number."""
    found = {name: read_file(stored(name), Comparison, SCHEMA, "a comparison") for name in TITLES
             if stored(name).exists()}
    PAGE.write_text(document(found))
    if found:
        PAGE.with_suffix(".svg").write_text(chart(next(iter(found.values()))))
    return len(found)


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
    measured = [] if args.document_only else [name for name in TITLES if (RESULTS / name / NAME).exists()]
    for name in measured:
        store(name)
    if measured:
        report = RESULTS / "report.html"
        _python("-m", "drut", "bench", "report", *(str(RESULTS / name) for name in measured), "--out", str(report))
    print(f"{PAGE.relative_to(ROOT)}: {write_page()} comparisons")
    return int(not all(ended))


if __name__ == "__main__":
    sys.exit(main())
