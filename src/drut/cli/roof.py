"""`drut roof`: measures the roof of this machine: maximum bandwidth and multiply-adds."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from drut.home import home
from drut.kernels.native.library import load
from drut.plan.probe import measure
from drut.plan.roof import FILE, Roof, keep

HELP = """Measure, in about a second, how fast this machine reads memory and multiplies, by number of threads.
The best of all runs is stored and shown."""
EXAMPLES = (
    ("drut roof", "measure for about a second"),
    ("drut roof --json", "the same as JSON"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the output format."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measures, merges with earlier measurements, and prints."""
    roof = keep(measure(load()), home() / FILE)
    if args.json:
        print(json.dumps(roof.to_json()))
    else:
        print(f"{roof.cpu} ({roof.isa}), best seen:")
        Console().print(table(roof))
        if not roof.gmac_per_s:
            print("Read by NumPy. The multiply peaks need the native library, which is not built.")
    return 0


def table(roof: Roof) -> Table:
    """Returns a table: a row for each measured quantity, a column for each number of threads."""
    counts = sorted(roof.read_gb_per_s)
    result = Table("")
    for count in counts:
        result.add_column(f"{count} thread{'s' if count > 1 else ''}", justify="right")
    for size in sorted({size for figures in roof.read_gb_per_s.values() for size in figures}):
        cells = [roof.read_gb_per_s[count].get(size) for count in counts]
        result.add_row(f"read of {_bytes(size)}, GB/s", *map(_cell, cells))
    for name, by_threads in roof.gmac_per_s.items():
        result.add_row(f"{name} multiply, GMAC/s", *(_cell(by_threads.get(count)) for count in counts))
    return result


def _bytes(size: int) -> str:
    return f"{size >> 20} MB" if size >> 20 else f"{size >> 10} kB"


def _cell(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.1f}"
