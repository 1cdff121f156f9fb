"""The summary for people: the contestants, their outcome, and which are better than the base."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from drut.bench.compare.enough import answers
from drut.bench.compare.gates import gsm8k_meaningful, perplexity
from drut.bench.compare.names import engine_of
from drut.bench.compare.ranking import places
from drut.bench.compare.schema import Cell, Comparison, Contestant, GateRecord, Ratio
from drut.bench.compare.verdicts import figures_of
from drut.bench.render.tables import cell as shown
from drut.bench.render.tables import plain, printable, table
from drut.bench.result.figures import COMPARED, FIGURES
from drut.bench.stats.rounds import over_rounds

MAIN = ("output_tokens_per_s", "goodput_per_s", "ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50", "e2e_ms_p50",
        "e2e_ms_p99", "cpu_s_per_1k_tokens", "peak_mb", "gpu_share", "cost_per_million_output")
_CHARTED, _BAR = "output_tokens_per_s", 40  # the figure of the chart, and the characters of its longest bar


def summary(found: Comparison) -> str:
    """Returns the summary as Markdown."""
    cells = [part for one in found.cells for part in _cell(found, one)]
    parts = [f"# {found.model}: {', '.join(c.name for c in found.contestants)}", _chart(found), _head(found), *cells,
             _contestants(found), _gate(found), _notes(found)]
    return "\n".join(map(printable, "\n\n".join(part for part in parts if part).split("\n")))


def _head(found: Comparison) -> str:
    env, settings = found.environment, found.settings
    state = "" if found.finished else "\n\n**Not finished**: turns are missing; `--resume` continues."
    return (f"{env.get('cpu', '')}, "
            f"{env.get('cpus', '')} CPUs, {env.get('started', '')}. {settings['rounds']} rounds of turns of "
            f"{settings['duration']:g} s after {settings['warmup']:g} s of the same load, the order reversed from "
            f"one to the next. A figure is the geometric mean of its valid rounds; a ratio is to {found.base}, taken "
            f"within rounds, with its 95 % interval in parentheses.{_by_chance(len(found.ratios))}{state}")


def _chart(found: Comparison) -> str:
    """Draws the output of all contestants as bars of characters, for terminals and Markdown alike."""
    by_cell = {one.name: figures_of(found.blocks, one.name, _CHARTED) for one in found.cells}
    means = {(one, who): float(value) for one, by in by_cell.items() for who, rounds in by.items()
             if isinstance(value := over_rounds(list(rounds.values()), logarithmic=True)[0], (int, float))}
    if not means:
        return ""
    wide = max(len(who) for _, who in means)
    lines = [f"{_title(_CHARTED, '')}, more is better"]
    for one in by_cell:
        top = max((value for (cell, _), value in means.items() if cell == one), default=1.0)
        lines += [printable(one)] * any(cell == one for cell, _ in means)
        lines += [f"  {printable(who):<{wide}} {shown(value):>7} {'█' * max(round(_BAR * value / top), 1)}"
                  for (cell, who), value in means.items() if cell == one]
    return "\n".join(["```", *(line.replace("`", "'") for line in lines), "```"])


def _by_chance(ratios: int) -> str:
    """Each ratio is judged by itself; returns how many would exclude 1 by chance if all engines were equal."""
    return f" Of {ratios} ratios, about {ratios / 20:.1f} intervals would exclude 1 by chance." if ratios else ""


def _contestants(found: Comparison) -> str:
    rows = [[plain(c.name), plain(engine_of(c)), plain(c.weights), shown(c.ready_s),
             shown(c.ready_mb), shown(c.peak_mb), _outcome(c, found)] for c in found.contestants]
    text = table(["contestant", "engine", "weights", "ready, s", "MB then", "MB at most", "outcome"], rows)
    for c in found.contestants:
        for line in ([c.why] if c.why else []) + c.remarks + ([] if c.verified else ["not verified here"]):
            text += f"\n\n- {plain(c.name)}: {plain(line)}."
    return text


def _gate(found: Comparison) -> str:
    gates = [(c.name, c.gate) for c in found.contestants if c.gate is not None]
    if not gates:
        return ""
    columns: dict[str, Callable[[GateRecord], str]] = {
        "greedy tokens agree": lambda g: _share(g.agreement), "first difference at": _first, "perplexity": perplexity,
        "divergence, nats": lambda g: shown(g.divergence) or "n/a", "lengths exact": lambda g: _share(g.lengths_exact),
        "GSM8K": lambda g: _share(g.gsm8k), "schemas valid": lambda g: _share(g.schema_valid),
        "judged on": lambda g: ", ".join(g.judged_on), "": lambda g: "passed" if g.passed else "**failed**"}
    if not gsm8k_meaningful(gate for _, gate in gates):
        del columns["GSM8K"]
    rows = [[plain(name), *(column(gate) for column in columns.values())] for name, gate in gates]
    return table(["gate", *columns], rows)


def _first(gate: GateRecord) -> str:
    """Returns the median position of the first difference from the reference."""
    places = sorted(math.inf if at is None else at for at in gate.differs_at)
    middle = places[len(places) // 2] if places else math.inf
    return "nowhere" if middle == math.inf else f"token {middle + 1:.0f}"


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0%}"


def _outcome(c: Contestant, found: Comparison) -> str:
    if c.outcome == "measured" and not any(block.contestant == c.name for block in found.blocks):
        return "no turn yet"
    return {"measured": "measured", "gate": "**failed the gate: not ranked**", "failed": "**failed**",
            "cannot run": "**cannot run**"}[c.outcome]


def _cell(found: Comparison, one: Cell) -> Iterator[str]:
    yield f"## {one.name}\n\n`{one.workload}`, " + (
        f"{one.concurrency} users" if one.rate is None else f"{one.rate:g} sessions a second")
    by_figure = {figure: figures_of(found.blocks, one.name, figure) for figure in MAIN}
    names = [c.name for c in found.contestants]
    figures = [figure for figure in MAIN if by_figure[figure]]
    if not figures:
        yield "No valid turn."
        return
    yield table(["", *names], [["Responses per turn", *(_answers(found, one, name) for name in names)],
                               *([_title(figure, found.currency), *(_mean(by_figure[figure].get(name), figure)
                                                                    for name in names)] for figure in figures)])
    ratios = {(r.figure, r.contestant): r for r in found.ratios if r.cell == one.name}
    others = [name for name in names if any(who == name for _, who in ratios)]
    if others:
        yield table([f"over {found.base}", *others], [[FIGURES[figure].title, *(_ratio(ratios.get((figure, name)))
                    for name in others)] for figure in figures if figure in COMPARED])
    yield from _verdicts(found, one, [r for (figure, _), r in ratios.items() if figure in figures])


def _verdicts(found: Comparison, one: Cell, ratios: list[Ratio]) -> Iterator[str]:
    """Yields sentences: which contestants are better, and where there is no difference."""
    lines = []
    for name in dict.fromkeys(r.contestant for r in ratios):
        mine = [r for r in ratios if r.contestant == name]
        for verdict, words in (("better", f"**{name} is better than {found.base}**"),
                               ("worse", f"{found.base} is better than {name}"),
                               ("level", f"{name} and {found.base} are indistinguishable")):
            which = [FIGURES[r.figure].title for r in mine if r.verdict == verdict]
            if which:
                lines.append(f"- {words}: {'; '.join(which)}.")
    for ranking in found.rankings:
        if ranking.cell == one.name and ranking.figure in MAIN[:1]:
            by_place: dict[str, list[str]] = {}
            for name, place in places(ranking.groups).items():
                by_place.setdefault(place, []).append(name)
            lines.append("- Places by output: " + "; ".join(f"{place} {', '.join(names)}"
                                                            for place, names in by_place.items()) + ".")
    if lines:
        yield "\n".join(map(plain, lines))


def _title(figure: str, currency: str) -> str:
    kind = FIGURES[figure]
    unit = kind.unit or currency
    return f"{kind.title}, {unit}"


def _answers(found: Comparison, one: Cell, name: str) -> str:
    """Returns the minimum and maximum number of responses behind latencies, over valid turns."""
    counts = [answers(block) for block in found.blocks
              if block.valid and (block.cell, block.contestant) == (one.name, name)]
    if not counts or math.inf in counts:
        return "n/a"
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} .. {max(counts)}"


def _mean(rounds: dict[int, float] | None, figure: str) -> str:
    """Returns the mean as reports show it."""
    if not rounds:
        return "n/a"
    return shown(over_rounds(list(rounds.values()), logarithmic=FIGURES[figure].unit != "share")[0])


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "n/a"
    text = f"{ratio.value:.3g} ({ratio.low:.3g} .. {ratio.high:.3g})"
    return {"better": f"**{text}** better", "worse": f"{text} worse", "level": f"{text} level"}[ratio.verdict]


def _notes(found: Comparison) -> str:
    void = [f"- round {b.round + 1}, {plain(b.cell)}, {plain(b.contestant)}: {plain('; '.join(b.reasons))}"
            for b in found.blocks if not b.valid]
    listed = "\n".join([*(f"- {plain(note)}" for note in found.notes), *void])
    return f"## Appendix: notes and excluded turns\n\n{listed}" if listed else ""
