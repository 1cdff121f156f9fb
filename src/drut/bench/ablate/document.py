"""An ablation as a short page of documentation: one table of what each technique changes where it should."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from drut.bench.ablate.schema import Ablation, Effect, Technique
from drut.bench.ablate.words import SHORT, as_expected, found
from drut.bench.render.tables import cell, plain
from drut.bench.result.figures import FIGURES

NOTHING = "Nothing is measured yet."
_METHOD = ("Two servers, one with the technique and one without, take turns at the same requests ([method]("
           "bench.md)). Latencies are medians of requests unless stated; off and on are "
           "medians of rounds. Bold: the geometric mean of the rounds' ratios, on over off, with its 95 % interval. "
           "*Open*: the interval contains 1 and is wider than 10 % in a direction.")


def document(ablation: Ablation, command: str, commit: str = "") -> str:
    """Returns the page; `command` is the command that made it, `commit` that of the measured code, if it is known."""
    head = ["# The gain of each technique",
            f"{_measured(ablation, commit)} Later changes of the code are not in these figures. `{command}` measures "
            "again and writes this page; [results/ablation.csv](results/ablation.csv) has every ratio.", _METHOD]
    return "\n\n".join([*head, *_body(ablation)]) + "\n"


def _measured(a: Ablation, commit: str) -> str:
    e = a.environment
    if not e:
        return NOTHING
    rounds = sorted({effect.rounds for effect in a.effects})
    count = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else "".join(map(str, rounds))
    code = f"drut {e.get('drut')}" + (f", commit {commit}" if commit else "")
    return (f"Measured on {e.get('cpu')}, {e.get('cpus')} CPUs, {e.get('system')}, Python {e.get('python')}, "
            f"{str(e.get('started'))[:10]}, {code}, with {plain(a.model)}, {count} rounds.")


def _body(a: Ablation) -> list[str]:
    lines = ["| technique | work | figure | off → on | on / off | result |", "|---|---|---|---|---|---|"]
    for technique in a.techniques:
        mine = [e for e in a.effects if e.technique == technique.name and e.expected != "no effect"]
        lines += [_row(technique if i == 0 else None, e) for i, e in enumerate(mine)]
    lost = [f"- {c.name}: {c.outcome}, {plain(c.why)}" for c in a.contestants if c.outcome != "measured"]
    lost += [f"- {t.title}: not measured" for t in a.techniques if not any(e.technique == t.name for e in a.effects)]
    lost += [f"- {plain(note)}" for note in a.notes]
    return ["\n".join(lines), *_controls(a), *(["\n".join(lost)] if lost else [])]


def _row(technique: Technique | None, e: Effect) -> str:
    name = "" if technique is None else technique.title + (f", off by `{shlex.join(technique.off)}`"
                                                             if technique.off else "")
    unit = "" if FIGURES[e.figure].unit == "share" else f", {FIGURES[e.figure].unit}"
    cells = [name, e.cell, _title(e.figure) + unit, f"{cell(e.off)} → {cell(e.on)}", _ratio(e), _result(e)]
    return f"| {' | '.join(cells)} |"


def _title(figure: str) -> str:
    return FIGURES[figure].title.removesuffix(", median").replace(",", "")


def _ratio(e: Effect) -> str:
    return f"**{e.ratio:.2f}** ({e.low:.2f}–{e.high:.2f})"


def _result(e: Effect) -> str:
    verdict = {"uncertain": "open"}.get(found(e), SHORT[found(e)])
    return verdict + (f" (expected: {e.expected})" if as_expected(e) == "not as expected" else "")


def _controls(a: Ablation) -> list[str]:
    """Returns sentences about the works where no effect was expected."""
    titles = {t.name: t.title for t in a.techniques}
    controls = [e for e in a.effects if e.expected == "no effect"]
    if not controls:
        return []
    quiet = [e for e in controls if e.verdict == "none"]
    little = sum(found(e) == "little" for e in quiet)
    texts = [f"Where no effect was expected, {len(quiet)} of {len(controls)} figures show none ({little} of them "
             "proven to be within 10 %)."]
    texts += [f"{titles.get(e.technique, e.technique)} {found(e)}: {_title(e.figure)} with {e.cell} {_ratio(e)}."
              for e in controls if e.verdict != "none"]
    return [" ".join(texts), *_by_chance(a.effects)]


def _by_chance(effects: Sequence[Effect]) -> list[str]:
    return [f"Of {len(effects)} ratios, about {len(effects) / 20:.1f} intervals would exclude 1 by chance."]
