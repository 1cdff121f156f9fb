"""`drut bench ablate`: measures the effect of each technique."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from drut.cli.terminal import note
from drut.errors import RequestError

if TYPE_CHECKING:
    from drut.bench.ablate.book import Book
    from drut.bench.ablate.run import AblationPlan
    from drut.bench.engines.engine import EngineFiles

SUMMARY = "measure the effect of each technique, switched off and on"
DESCRIPTION = (
    "Starts Drut's server twice for each technique, with it and without, alternates between the two on work where the "
    "technique should help and on work where it should not, and writes its effect: DIR/ablation.json, ablation.csv and "
    "summary.md, after each block. Exits with 3 if a server failed.")
EXAMPLES = (
    ("drut bench ablate --dry-run --out runs/techniques", "the techniques, and how long they take"),
    ("drut bench ablate --out runs/techniques", "the gain of each"),
    ("drut bench ablate --techniques fusion,overlap --rounds 6 --out runs/two", "two of them, more exactly"),
)
FAILED_EXIT, INTERRUPT_EXIT = 3, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the measurements, and the output folder."""
    parser.add_argument("--model", default="smollm2-135m-instruct", metavar="M", help="known name, GGUF file "
                        "or folder; the work is sized for the default (default: smollm2-135m-instruct)")
    parser.add_argument("--techniques", metavar="NAMES", help="comma-separated (default: all; --dry-run "
                        "names them)")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="rounds of each technique; 3 or more for a "
                        "verdict (default: 4)")
    parser.add_argument("--duration", type=float, default=5.0, metavar="S", help="measured seconds of a block "
                        "(default: 5)")
    parser.add_argument("--warmup", type=float, default=1.0, metavar="S", help="minimum seconds of load before them "
                        "(default: 1)")
    parser.add_argument("--threads", type=int, metavar="N", help="kernel threads of the servers (default: the CPUs)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the requests (default: 0)")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the files; files of an earlier run "
                        "are replaced, unless --resume")
    parser.add_argument("--resume", action="store_true", help="continue with the results in DIR: missing or void "
                        "blocks, further techniques or rounds")
    parser.add_argument("--document", metavar="FILE", help="also write the result as a page of documentation")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be measured and its time "
                        "(and write --document without missing figures)")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    """Returns 0, 3 if a server failed, or 130 if it was interrupted; measurements are kept in all cases."""
    from drut.bench.ablate.book import JSON, Book, empty
    from drut.bench.ablate.document import document
    from drut.bench.ablate.run import AblationPlan
    from drut.bench.ablate.techniques import chosen
    from drut.bench.files import make_folder, write_file
    from drut.machine import usable_cpus

    _check(args)
    plan = AblationPlan(recipes=chosen(args.techniques), rounds=args.rounds, duration_s=args.duration,
                        warmup_s=args.warmup,
                        seed=args.seed, threads=args.threads or len(usable_cpus()))
    folder = Path(args.out)
    make_folder(folder)
    kept = args.resume or (args.dry_run and (folder / JSON).exists())
    book = Book.resumed(folder, args.model, plan.settings()) if kept else \
        Book(folder, empty(args.model, plan.settings()))
    code = _foresee(plan, book) if args.dry_run else _measure(args, plan, book)
    if args.document:
        page = Path(args.document)
        write_file(page, lambda file: file.write(document(book.ablation, _command(args), _commit(page))))
    return code


def _foresee(plan: AblationPlan, book: Book) -> int:
    from drut.bench.ablate.run import minutes, seconds

    for recipe in plan.recipes:
        book.place(recipe)
        print(f"{recipe.name}: {recipe.title}, {len(book.missing(recipe, plan.rounds))} blocks")
    print(f"It would take about {minutes(seconds(plan, book))}.")
    return 0


def _measure(args: argparse.Namespace, plan: AblationPlan, book: Book) -> int:
    from drut.bench.ablate.run import ablate, minutes, seconds
    from drut.bench.ablate.weights import model_files
    from drut.bench.engines.registry import find
    from drut.model.store import resolve

    def report(line: str) -> None:
        if not args.quiet:
            note(line)

    def files(weights: str) -> EngineFiles:
        return model_files(args.model, path, book.folder / "models", weights)

    path = resolve(args.model)
    report(f"{len(plan.recipes)} techniques, {plan.rounds} rounds: about {minutes(seconds(plan, book))}")
    interrupted = False
    try:
        ablate(plan, find("drut"), files, book, report)
    except KeyboardInterrupt:
        note("interrupted; --resume continues from here")
        interrupted = True
    print((book.folder / "summary.md").read_text(), end="")
    failed = any(contestant.outcome != "measured" for contestant in book.ablation.contestants)
    return INTERRUPT_EXIT if interrupted else FAILED_EXIT if failed else 0


def _check(args: argparse.Namespace) -> None:
    for name, least, most in (("rounds", 1, 1000), ("duration", 0.5, 3600), ("warmup", 0, 3600), ("threads", 1, 1024)):
        value = getattr(args, name)
        if value is not None and not least <= value <= most:
            raise RequestError(f"--{name} must be from {least} to {most}, not {value}")


def _command(args: argparse.Namespace) -> str:
    """Returns the command line to repeat the run, without defaults and paths of files."""
    words = ["drut bench ablate"]
    for name in ("model", "techniques", "rounds", "duration", "warmup", "threads", "seed"):
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        if getattr(args, name) != parser.get_default(name):
            words.append(f"--{name} {getattr(args, name)}")
    return " ".join([*words, "--out DIR", f"--document {args.document}"])


def _commit(page: Path) -> str:
    """Returns the commit of the checkout that the page belongs to; empty outside of one."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(page.resolve().parent), "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
