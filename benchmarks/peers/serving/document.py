"""Writes docs/comparison.md and its chart from the comparisons under docs/results/."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from drut.bench.compare.enough import supported
from drut.bench.compare.schema import Comparison, Contestant, Ratio
from drut.bench.compare.verdicts import figures_of
from drut.bench.render.page.image import image
from drut.bench.render.page.marks import Palette
from drut.bench.render.tables import cell, plain
from drut.bench.report.estimates import of_blocks
from drut.bench.report.sections.comparison import output_chart
from drut.bench.stats.distribution import Figure
from drut.bench.stats.rounds import over_rounds

TITLES = {"smollm2": "SmolLM2-135M", "slow": "SmolLM2-135M: SGLang and MLX",
          "llama-1b": "A shape of 1.1 G weights", "llama-1b-slow": "A shape of 1.1 G weights: vLLM, SGLang and MLX"}
FIGURES = {"output_tokens_per_s": "output, tokens/s", "ttft_ms_p50": "TTFT, ms", "tpot_ms_p50": "TPOT, ms"}
BRIEF = ("slow", "llama-1b-slow")  # of engines that are not made for such a CPU: the first figure alone
UNUSED = ("A turn with fewer", "The load client's", "Not all engines read", "The gate judged")
"""Beginnings of notes on figures that the page does not show, or that it states elsewhere."""
_DIGITS = 4  # of stored figures

HEAD = """# Serving engines compared

![Output tokens/s of each engine on {model}](comparison.svg)

{measured} Later changes of the code are not in these figures. `make comparison` measures again and writes this page;
[results](results/) has all figures of every turn.

Each engine runs the best configuration found for it, on both CPUs, from the same weights in the format that suits it
([method](compare.md), [engines](engines.md)). A figure is the geometric mean of the valid rounds; TTFT and TPOT are
medians of requests. Bold: the ratio to Drut within rounds, with its 95 % interval; *level* means indistinguishable.
"""


def slim(c: Comparison, commit: str) -> Comparison:
    """Returns what is stored: without the samples of requests, and without figures that a turn does not support."""
    blocks = [msgspec.structs.replace(b, samples={}, timeline=[], figures={
        name: float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
        for name in b.figures if (value := supported(b, name)) is not None}) for b in c.blocks]
    environment = c.environment if "commit" in c.environment else {**c.environment, "commit": commit}
    return msgspec.structs.replace(c, blocks=blocks, environment=environment)


def chart(c: Comparison) -> str:
    """Returns the chart as SVG; empty without a figure."""
    names = [x.name for x in c.contestants]
    found = output_chart(c, of_blocks(c.blocks, [x.name for x in c.cells], names))
    return "" if found is None else image(found, _palette(names))


def _palette(names: Sequence[str]) -> Palette:
    palette = Palette([])
    for name in names:
        palette.number(name)
    return palette


def document(found: Mapping[str, Comparison]) -> str:
    """Returns the page; the first comparison has the chart."""
    if not found:
        return "# Serving engines compared\n\nNothing has been measured yet.\n"
    first = next(iter(found.values()))
    parts = [HEAD.format(model=first.model, measured=_measured(list(found.values())))]
    parts += [text for name, c in found.items() for text in _comparison(name, c)]
    return "\n".join([*parts, *_work(found.values()), *_appendix(found)])


def _measured(all_of: Sequence[Comparison]) -> str:
    machines = dict.fromkeys(f"{c.environment.get('cpu', '')}, {c.environment.get('cpus', '')} CPUs" for c in all_of)
    days = sorted({str(c.environment.get("started", ""))[:10] for c in all_of})
    commits = dict.fromkeys(str(c.environment["commit"]) for c in all_of if c.environment.get("commit"))
    return (f"Measured on {' and '.join(machines)}, {' and '.join(days)}, drut "
            f"{all_of[0].environment.get('drut', '')}, commit {' and '.join(commits) or 'unknown'}.")


def _comparison(name: str, c: Comparison) -> Iterator[str]:
    measured = [x for x in c.contestants if x.outcome == "measured"]
    yield f"## {TITLES.get(name, name)}\n"
    yield f"| work | figure | {' | '.join(x.name for x in measured)} |"
    yield "|---" * (len(measured) + 2) + "|"
    ratios = {(r.cell, r.figure, r.contestant): r for r in c.ratios}
    for one in c.cells:
        first = True
        for figure, title in list(FIGURES.items())[:1 if name in BRIEF else None]:
            by = figures_of(c.blocks, one.name, figure)
            if by:
                cells = [_cell(by.get(x.name), ratios.get((one.name, figure, x.name))) for x in measured]
                yield f"| {one.name if first else ''} | {title} | {' | '.join(cells)} |"
                first = False
    settings = c.settings
    yield (f"\n{settings.get('rounds')} rounds of turns of {settings['duration']:g} s, `python -m "
           f"benchmarks.peers.serving {name}`. {'; '.join(map(_engine, measured))}.\n")


def _cell(rounds: Mapping[int, float] | None, ratio: Ratio | None) -> str:
    if not rounds:
        return "n/a"
    value = cell3(over_rounds(list(rounds.values()), logarithmic=True)[0])
    if ratio is None:
        return value
    level = " *level*" if ratio.verdict == "level" else ""
    return f"{value}: **{ratio.value:.2g}** ({ratio.low:.2g}–{ratio.high:.2g}){level}"


def cell3(value: Figure) -> str:
    """Formats a figure with three digits."""
    return f"{value:.3g}" if isinstance(value, float) and value < 1e3 else cell(value)


def _engine(c: Contestant) -> str:
    versions = [version for name, version in c.versions.items() if name not in ("python", "compiler")]
    return f"{c.name} {versions[0] if versions else ''} ({c.weights}, ready in {cell3(c.ready_s)} s)"


def _work(all_of: Iterable[Comparison]) -> Iterator[str]:
    cells = {x.name: x for c in all_of for x in c.cells}
    texts = dict.fromkeys(f"`{x.name.partition('@')[0]}` is `{x.workload}`" for x in cells.values())
    yield f"Work: `@N` is the number of users, {', '.join(texts)}.\n"


def _appendix(found: Mapping[str, Comparison]) -> Iterator[str]:
    """Yields what limits the figures: remarks, the gate, notes, and the excluded turns."""
    yield "## Appendix: remarks and excluded turns\n"
    remarks: dict[str, list[str]] = {}
    for x in (x for c in found.values() for x in c.contestants):
        remarks[x.name] = list(dict.fromkeys([*remarks.get(x.name, []), *x.remarks]))
    yield from (f"- {who}: {plain('; '.join(lines))}." for who, lines in remarks.items() if lines)
    for name, c in found.items():
        gates = [(x.name, x.gate) for x in c.contestants if x.gate is not None and x.name != c.base]
        same = ", ".join(f"{who} {gate.agreement:.0%}" for who, gate in gates if gate.agreement is not None)
        void = Counter(f"{b.contestant} at {b.cell}" for b in c.blocks if not b.valid)
        turns = Counter(f"{b.contestant} at {b.cell}" for b in c.blocks)
        texts = [f"greedy tokens equal to the reference's: {same}" if same else "",
                 *(f"{x.name}: {x.outcome}, {plain(x.why)}" for x in c.contestants if x.outcome != "measured"),
                 *(f"excluded: {n} of {turns[who]} turns of {who}" for who, n in void.items()),
                 *(plain(note).rstrip(".") for note in c.notes if not note.startswith(UNUSED) and not _of_void(note))]
        yield f"- {TITLES.get(name, name)}: {'; '.join(text for text in texts if text)}."
    yield ""


def _of_void(note: str) -> bool:
    """Returns whether a note lists excluded turns, which the page counts itself."""
    return "are void and do not count" in note
