"""`drut bench diff`: compares two measurements."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from drut.errors import RequestError

SUMMARY = "compare two measurements of the same work"
DESCRIPTION = (
    "Compares two results, comparisons, searches or ablations metric by metric, by their intervals. Exits with 0 if "
    "nothing is worse, 1 if something is worse by more than chance and --least, 2 if they cannot be compared.")
EXAMPLES = (
    ("drut bench diff runs/before runs/after", "exit code 1 if a figure became worse"),
    ("drut bench diff runs/before runs/after --figures ttft_ms_p99 --least 0.02", "one figure, changes from 2 % on"),
)
WORSE_EXIT, INCOMPARABLE_EXIT = 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the two measurements and the criteria."""
    parser.add_argument("a", metavar="A", help="the earlier one: a file, or a folder that has one")
    parser.add_argument("b", metavar="B", help="the later one")
    parser.add_argument("--figures", metavar="NAMES", help="metrics to compare, comma-separated, or all (default: the "
                        "usual ones that have intervals)")
    parser.add_argument("--least", type=float, default=0.05, metavar="X", help="relative change that matters (default: "
                        "0.05)")
    parser.add_argument("--force", action="store_true", help="compare different work or different machines, too")
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Compares and prints; the exit code is sufficient for a CI."""
    import msgspec

    from drut.bench.diff.comparable import differences
    from drut.bench.diff.judge import USUAL, changes, worse
    from drut.bench.diff.text import diff_text
    from drut.bench.render.tables import printable

    if not 0 <= args.least < 100:
        raise RequestError(f"--least must be from 0 to 100, not {args.least}")
    a, b = _same_kind(Path(args.a), Path(args.b))
    known = differences(a, b)
    figures = USUAL if args.figures is None else _figures(args.figures)
    refused = bool(known.reasons) and not args.force
    found = [] if refused else changes(a, b, figures, args.least)
    if not refused and all(change.verdict == "unknown" for change in found):
        known.reasons.append("no metric has an interval in both (a window of 10 s, three rounds, or --figures)")
        refused = True
    if args.json:
        print(msgspec.json.encode({"comparable": not refused, "reasons": known.reasons, "notes": known.notes,
                                   "least": args.least, "changes": found}).decode())
    elif refused:
        print("drut: cannot be compared (--force does it all the same):", *(f"- {printable(reason)}" for reason in
                                                                           known.reasons), sep="\n", file=sys.stderr)
    else:
        print(diff_text(found, known, args.least))
    return INCOMPARABLE_EXIT if refused else WORSE_EXIT if worse(found) else 0


def _figures(text: str) -> set[str]:
    from drut.bench.diff.judge import JUDGED

    known = set(JUDGED)
    names = known if text == "all" else {name.strip() for name in text.split(",")}
    if unknown := sorted(names - known):
        raise RequestError(f"--figures: there is no {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return names


def _same_kind(a: Path, b: Path) -> tuple[Any, Any]:
    """Returns the documents; if folders have several, those of the only kind that both have."""
    from drut.bench.report.documents import find, kind

    ones, others = ({kind(s.document): s.document for s in find([place])} for place in (a, b))
    both = ones.keys() & others.keys()
    if len(both) > 1:
        raise RequestError(f"{a} and {b} both have {' and '.join(f'{name}.json' for name in sorted(both))}; name one")
    if len(both) == 1:
        name = both.pop()
        return ones[name], others[name]
    return next(iter(ones.values())), next(iter(others.values()))
