"""`drut bench compare`: compares engines on the same work."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drut.cli.bench.struct_flags import add_struct_flags, given
from drut.errors import RequestError

SUMMARY = "compare engines on the same work"
DESCRIPTION = (
    "Starts engines on one model, checks the quality of their answers, and alternates between them on the same work, "
    "with the others stopped. Writes DIR/comparison.json after each turn, then blocks.csv, summary.md and report.html. "
    "Exits with 3 if no engine was measured and passed, with 130 if it was interrupted; --resume then continues.")
EXAMPLES = (
    ("drut bench compare --model smollm2-135m-instruct --engines drut,llama.cpp --out runs/both",
     "two engines in turns on the same work"),
    ('drut bench compare --engines "q4=llama.cpp gguf=q4_0.gguf" "q8=llama.cpp gguf=q8_0.gguf" --out runs/files',
     "one engine on two files"),
    ("drut bench compare --resume runs/both --rounds 8", "more rounds"),
)
NOTHING_EXIT, INTERRUPT_EXIT = 3, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each of the settings, and the output folder."""
    from drut.bench.compare.settings import CompareSettings

    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="DIR", help="folder for the files; it must not have a comparison yet")
    where.add_argument("--resume", metavar="DIR", help="take the missing turns of an unfinished comparison; only "
                       "--rounds may be given with it")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML, with the flags' names "
                        "and _ for -; flags have precedence")
    parser.add_argument("--dry-run", action="store_true", help="print the turns and their time, start nothing")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_struct_flags(parser, CompareSettings)


def run(args: argparse.Namespace) -> int:
    """Runs the comparison; the files are written even after an error or an interrupt."""
    from drut.bench.compare.comparing import Comparing
    from drut.bench.compare.files import NAME, blocks_csv, load, save, write
    from drut.bench.compare.settings import CompareSettings, settings
    from drut.bench.compare.summary import summary
    from drut.bench.files import make_folder
    from drut.bench.report.documents import find
    from drut.bench.report.write import write_report

    values = given(args, CompareSettings)
    before = None
    if args.resume is not None:
        if args.config is not None or values.keys() - {"rounds"}:
            raise RequestError("--resume continues with the earlier settings; only --rounds may be given")
        before = load(Path(args.resume))
        values = {**before.settings, **values}
    folder = Path(args.resume or args.out)
    comparing = Comparing.of(settings(values, args.config), folder, before)
    report = _silent if args.quiet else _report
    _plan(comparing, report)
    if args.dry_run:
        return 0
    make_folder(folder)
    if before is None and (folder / NAME).exists():
        raise RequestError(f"--out: {folder} has a comparison already; --resume continues it")
    code = 0
    try:
        with _ended_by_signals():
            comparing.run(report)
    except KeyboardInterrupt:
        report("interrupted")
        code = INTERRUPT_EXIT
    finally:
        found = comparing.comparison()
        try:
            save(found, folder)
            write(folder / "blocks.csv", blocks_csv(found.blocks))
            write(folder / "summary.md", summary(found).encode() + b"\n")
            if found.blocks:
                write_report(find([folder / NAME]), folder / "report.html")
        finally:  # the results are printed even if writing fails, for example on a full disk
            print(summary(found))
    if code == 0 and not any(c.outcome == "measured" for c in found.contestants):
        return NOTHING_EXIT
    return code


def _plan(comparing: Any, report: Any) -> None:
    left = comparing.missing()
    paper = comparing.paper
    seconds = comparing.seconds(len(left))
    end = time.strftime("%H:%M", time.localtime(time.time() + seconds))
    report(f"{len(left)} turns of {len(comparing.candidates)} contestants at {len(comparing.works)} cells: at least "
           f"{seconds / 60:.0f} min, until {end}, without the time to start, to answer {paper.most_tokens} tokens "
           "each, at most, for the gate, and to end requests in flight at the end of a turn")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Handles SIGTERM like Ctrl-C, and Ctrl-C also in a background job of a shell, which ignores it: engines must not
    outlive the comparison."""
    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _silent(text: str) -> None:
    pass


