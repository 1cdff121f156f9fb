"""`drut bench report`: writes results as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from drut.errors import RequestError

SUMMARY = "write results as one HTML page, Markdown and CSV"
DESCRIPTION = (
    "Makes one HTML file with plots and tables of any result.json, comparison.json, search.json and ablation.json, "
    "of several, or of the folder of a sweep, and next to it the same as Markdown and CSV. The page needs no network "
    "and has no script.")
EXAMPLES = (
    ("drut bench report runs/first", "report.html, report.md and report.csv in the folder"),
    ("drut bench report runs/a runs/b --out runs/both.html", "two runs on one page"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds inputs and output."""
    parser.add_argument("places", nargs="+", metavar="DIR|FILE", help="a file, or a folder that has some")
    parser.add_argument("--out", metavar="FILE", help="the page; .md and .csv are next to it (default: report.html "
                        "in the first folder, or next to the first file)")


def run(args: argparse.Namespace) -> int:
    """Writes the page; prints the paths."""
    from drut.bench.files import make_folder
    from drut.bench.report.documents import find
    from drut.bench.report.write import write_report

    out = None if args.out is None else Path(args.out)
    if out is not None and out.suffix != ".html":
        raise RequestError(f"--out must end in .html, unlike {args.out!r}")
    places = [Path(place) for place in args.places]
    sources = find(places)
    if out is None:
        out = places[0] / "report.html" if places[0].is_dir() else sources[0].path.with_name("report.html")
    make_folder(out.parent)
    for path in write_report(sources, out):
        print(path)
    return 0
