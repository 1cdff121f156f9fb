"""Writes docs/benchmarks.md from docs/results/benchmarks.json, which `make compare` brings up to date.

    python -m benchmarks.peers.offline.document [--print]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from benchmarks.peers.build import ROOT
from benchmarks.peers.models import MODELS
from benchmarks.peers.offline import condensed
from benchmarks.peers.offline.condensed import Table
from benchmarks.peers.offline.contestants import AGAINST, NAMES, TITLES
from benchmarks.peers.offline.results import load_all

from drut.plan.roof import OPERANDS

PATH = ROOT / "docs" / "benchmarks.md"
BUSY = 0.1  # CPUs used by others above which figures are doubtful
IDLE = 0.9  # share of its CPUs that an engine keeps busy; otherwise its column has a note

HEAD = """# Engines compared without a server

{measured} Later changes of the code are not in these figures. `make compare` measures again and writes this page;
[results/benchmarks.json](results/benchmarks.json) has its data.

Tokens/s, the median of the rounds with their range. Bold: Drut's speed over the other engine's, within rounds. Ready:
seconds from the start of the process to the loaded model, its files in the page cache. The roof is what memory and
multipliers allowed in the same minutes ([method](../benchmarks/README.md#comparison-with-other-engines),
[peaks](metrics.md#of-a-step-and-a-machine)).
"""


def document(tables: Sequence[Table]) -> str:
    """Returns the page."""
    if not tables:
        return "# Engines compared without a server\n\nNothing has been measured yet.\n"
    head = HEAD.format(measured=_measured(tables))
    return "\n".join([head, *(line for t in tables for line in _model(t)), *_engines(tables)]) + "\n"


def _measured(tables: Sequence[Table]) -> str:
    columns = [column for t in tables for column in t["columns"]]
    machines = dict.fromkeys(f"{m['cpu']}, {m['cpus']} CPUs, {m['memory_gb']:.0f} GB, Linux {m['system']}, Python "
                             f"{m['python']}" for m in (c["machine"] for c in columns))
    days = sorted({c["when"][:10] for c in columns})
    commits = sorted({c["machine"]["commit"] for c in columns})
    return f"Measured on {' and '.join(machines)}, {' and '.join(days)}, at commit {', '.join(commits)}."


def _model(t: Table) -> Iterator[str]:
    columns, engines = t["columns"], t["engines"]
    yield f"## {MODELS[t['model']].title}{' and vLLM' if 'vllm' in engines else ''}\n"
    rows = []
    for n, engine in engines.items():
        rows.append([TITLES[n], f"{engine['ready_s']:.1f}", *(_cell(c["speed"].get(n), 0) for c in columns)])
    for n in engines:
        if AGAINST.get(n) in engines:
            rows.append([f"{TITLES[AGAINST[n]]} / {TITLES[n]}", "", *(_bold(c["ratio"].get(n)) for c in columns)])
    if any(c["share"].get("drut") for c in columns):
        rows.append(["Drut, % of the roof", "", *(_share(c) for c in columns)])
    yield from table(["", "ready, s", *(c["title"] for c in columns)], iter(rows))
    yield from _notes(t)


def _notes(t: Table) -> Iterator[str]:
    runs: dict[tuple[str, str], list[dict]] = {}
    for c in t["columns"]:
        runs.setdefault((c["when"], c["command"]), []).append(c)
    for (when, command), mine in runs.items():
        roof, busy = mine[0]["roof"], max((c["others"][0] for c in mine if c["others"]), default=None)
        read = max((int(size), gb) for size, gb in roof["read_gb_per_s"].items())[1]
        note = "" if busy is None else f"; others used {busy:.2f} CPUs" + (" (**busy: repeat**)" if busy > BUSY else "")
        what = "" if len(runs) == 1 else f"{', '.join(c['title'] for c in mine)}: "
        yield (f"- {what}{mine[0]['rounds']} rounds, {when}, `{command}`; roof {read:.1f} GB/s, "
               f"{_multiply(roof)}{note}.")
    idle = {n: min(used) for n in t["engines"] if (used := [c["cpus"][n] for c in t["columns"] if n in c["cpus"]])
            and min(used) < IDLE * t["columns"][0]["machine"]["cpus"]}
    texts = [f"{TITLES[n]} kept {used:.2f} CPUs busy in one column" for n, used in idle.items() if n != "drut"]
    texts += [f"{100 * share:.0f} % of {TITLES[n]}'s first tokens equal Drut's" for n, share in t["agreement"].items()]
    if texts:
        yield f"- {'; '.join(texts)}."
    for n, why in t["missing"].items():
        yield f"- Left out: {TITLES[n]}: {why}."
    yield ""


def _engines(tables: Sequence[Table]) -> Iterator[str]:
    """Yields what each engine is; the data has the files and the memory."""
    yield "## Versions\n"
    for n in NAMES:
        mine = [t["engines"][n] for t in tables if n in t["engines"]]
        if mine:
            kinds = dict.fromkeys(e["engine"].partition(", CPU :")[0].strip() for e in mine)
            yield f"- {TITLES[n]}: {'; '.join(kinds)}."


def table(head: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    """Yields a Markdown table and an empty line."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _cell(figure: Sequence[float] | None, digits: int) -> str:
    if figure is None:
        return ""
    median, low, high = (f"{value:.{digits}f}" for value in figure)
    return f"{median} ({low}–{high})"


def _share(column: dict) -> str:
    """Returns the share of the roof and which roof it is."""
    figure = column["share"].get("drut")
    return "" if figure is None else f"{figure[0]:.0f} ({column['bound_by']})"


def _multiply(roof: dict) -> str:
    """Returns the multiply peaks by operands."""
    return ", ".join(f"{name} {roof[f'{name}_gmac_per_s']:.0f}" for name in OPERANDS) + " GMAC/s"


def _bold(figure: Sequence[float] | None) -> str:
    return "" if figure is None else f"**{figure[0]:.2f}** ({figure[1]:.2f}–{figure[2]:.2f})"


def write() -> str:
    """Brings the stored tables up to date with the results under build/compare/, and writes the page from them; returns
    a message."""
    tables = condensed.update(condensed.load(), condensed.condense(load_all()))
    condensed.save(tables)
    PATH.write_text(document(tables))
    return f"{PATH.relative_to(ROOT)} written"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print the page instead")
    print(document(condensed.load()) if parser.parse_args().print else write())
    return 0


if __name__ == "__main__":
    sys.exit(main())
