"""Writes docs/benchmarks.md from the results under build/compare/.

    python -m benchmarks.peers.offline.document [--print]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from benchmarks.peers.build import ROOT
from benchmarks.peers.models import MODELS
from benchmarks.peers.offline.contestants import AGAINST, NAMES, TITLES
from benchmarks.peers.offline.results import Result, load_all
from benchmarks.peers.offline.summary import agreement, cpus, others, ratio, speed
from benchmarks.report import Spread

PATH = ROOT / "docs" / "benchmarks.md"
BUSY = 0.1  # CPUs used by others above which figures are doubtful
IDLE = 0.9  # share of its CPUs that an engine keeps busy; otherwise its column has a note

HEAD = """# Comparison with other engines

Written by `python -m benchmarks.peers.offline.document` from the results of `make compare`; do not edit. [How it is
measured](../benchmarks/README.md#comparison-with-other-engines). A figure is the median of the rounds, with their range
in parentheses. A ratio is Drut's speed over the other engine's in the same round: above 1 Drut is faster. The floor of
a step is the sum over its operations of the longer of two times: its bytes over the read bandwidth, and its
multiply-adds over the multiply peak. `drut roof` measures both in every round; the best counts.
"""


Groups = dict[tuple[str, tuple[str, ...]], list[Result]]  # by model and company of engines; each is a table


def document(results: Groups) -> str:
    """Returns the page."""
    if not results:
        return HEAD + "\nNothing has been measured yet.\n"
    return "\n".join([HEAD, *_machine(results), *(line for (name, _), columns in results.items()
                                                  for line in _model(name, columns))]) + "\n"


def _machine(results: Groups) -> Iterator[str]:
    every = [result for columns in results.values() for result in columns]
    machines = {(r["machine"]["cpu"], r["machine"]["cpus"]): r["machine"] for r in every}
    for m in machines.values():
        yield (f"**Machine.** {m['cpu']}, {m['cpus']} CPUs, {m['memory_gb']:.0f} GB; Linux {m['system']}; Python "
               f"{m['python']}.\n")
    commits = sorted({r["machine"]["commit"] for r in every})
    yield f"**Drut.** Commit {', '.join(commits)}.\n"


def _model(name: str, columns: Sequence[Result]) -> Iterator[str]:
    engines = {n: r["engines"][n] for r in columns for n in r["engines"]}
    names = [n for n in NAMES if n in engines]
    yield f"## {MODELS[name].title}: {', '.join(TITLES[n] for n in names)}\n"
    heads = [r["title"] for r in columns]
    load = {n: f"{engines[n]['ready_s']:.1f}" for n in names}
    yield "Tokens/s. Ready: seconds from the start of the process to the model loaded, its files in memory before.\n"
    yield from table(["", "ready, s", *heads], (
        [TITLES[n], load[n], *(_cell(speed(r["rounds"], n), 0) for r in columns)] for n in names))
    pairs = [(n, AGAINST[n]) for n in names if AGAINST.get(n) in names]
    if pairs:
        yield "Drut's speed over theirs.\n"
        yield from table(["", "", *heads], (
            [TITLES[n], _file_note(engines[n]), *(_bold(ratio(r["rounds"], drut, n)) for r in columns)]
            for n, drut in pairs))
    shares = [n for n in names if engines[n]["same_file"]]
    if any(r["roof_tokens_per_s"] for r in columns):
        yield "Share of the roof, %, of those that read the same file.\n"
        yield from table(["", *heads], ([TITLES[n], *(_cell(_share(r, n), 0) for r in columns)] for n in shares))
    yield from _notes(columns, names, engines, pairs)


def _notes(columns: Sequence[Result], names: Sequence[str], engines: dict[str, Result],
           pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    for titles, r in _runs(columns):
        roof, busy = r["roof"], others([record for column in titles for record in columns[column]["rounds"]])
        read = max((int(size), gb) for size, gb in roof["read_gb_per_s"].items())[1]
        note = "" if busy is None else f"; others used {_cell(busy, 2)} CPUs"
        note += " (**busy: repeat**)" if busy is not None and busy.median > BUSY else ""
        int8, avx2 = roof["int8_gmac_per_s"], roof["avx2_int8_gmac_per_s"]
        yield (f"- {', '.join(columns[column]['title'] for column in titles)}: {len(r['rounds'])} rounds, {r['when']}, "
               f"`{r['command']}`; roof {read:.1f} GB/s from memory, int8 {int8:.0f} GMAC/s ({avx2:.0f} with AVX2), "
               f"bf16 {roof['bf16_gmac_per_s']:.0f}{note}.")
    for n in names:
        used = [(r["title"], cpus(r["rounds"], n)) for r in columns]
        low = [f"{title} {u.median:.2f}" for title, u in used if u is not None
               and u.median < IDLE * columns[0]["machine"]["cpus"]]
        idle = f"; CPUs kept busy where not all: {', '.join(low)}" if low else ""
        yield (f"- {TITLES[n]}: {engines[n]['engine'].strip()}; {engines[n]['file']}; pinned by "
               f"{engines[n]['pinned_by']}; {engines[n]['memory_mb']:.0f} MB{idle}.")
    same = [f"{TITLES[n]} {100 * share:.0f} %" for n, drut in pairs
            if (share := _agreement(columns, n, drut)) is not None]
    if same:
        yield f"- First tokens equal to Drut's: {', '.join(same)}."
    missing = {n: why for r in columns for n, why in r["missing"].items()}
    for n, why in missing.items():
        yield f"- Left out: {TITLES[n]}: {why}."
    yield ""


def _runs(columns: Sequence[Result]) -> list[tuple[list[int], Result]]:
    """Returns the columns, by index, that one run measured, and the first of them."""
    runs: dict[tuple[str, str], list[int]] = {}
    for index, r in enumerate(columns):
        runs.setdefault((r["when"], r["command"]), []).append(index)
    return [(indices, columns[indices[0]]) for indices in runs.values()]


def table(head: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    """Yields a Markdown table and an empty line."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _cell(figure: Spread | None, digits: int) -> str:
    return "" if figure is None else figure.text(digits)


def _bold(figure: Spread | None) -> str:
    return "" if figure is None else f"**{figure.median:.2f}** ({figure.low:.2f} .. {figure.high:.2f})"


def _share(result: Result, name: str) -> Spread | None:
    roof = result["roof_tokens_per_s"].get("avx2" if name.endswith("-avx2") else "best")
    figure = speed(result["rounds"], name)
    return None if not roof or figure is None else figure.scaled(100 / roof)


def _file_note(engine: Result) -> str:
    return "the same file" if engine["same_file"] else f"its own: {engine['file']}"


def _agreement(columns: Sequence[Result], name: str, other: str) -> float | None:
    rounds = [record for r in columns for record in r["rounds"]]
    return agreement(rounds, name, other)


def write() -> str:
    """Writes the page; returns a message."""
    PATH.write_text(document(load_all()))
    return f"{PATH.relative_to(ROOT)} written"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print the page instead")
    print(document(load_all()) if parser.parse_args().print else write())
    return 0


if __name__ == "__main__":
    sys.exit(main())
