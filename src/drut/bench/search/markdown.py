"""The summary of a search for people."""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.render.tables import cell, plain, printable, table
from drut.bench.search.schema import Point, Search, SearchAnswer
from drut.bench.stats.distribution import Figure

_FIGURES = ("output_tokens_per_s", "ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50", "tpot_ms_p99")
_HEADS = ("tokens/s", "TTFT p50", "p99", "TPOT p50", "p99")


def markdown(search: Search) -> str:
    """Returns the whole summary."""
    parts = [_head(search), _answers(search), _notes(search),
             _curve("Against concurrency", "users", [p for p in search.points if p.concurrency is not None]),
             _curve("Against rate", "sessions/s", [p for p in search.points if p.rate is not None])]
    text = "\n\n".join(part for part in parts if part)
    return "\n".join(map(printable, text.split("\n")))


def _head(search: Search) -> str:
    lines = [f"# Load test of {plain(search.target)}"]
    if search.ended:
        lines.append("**Not finished.**" if search.ended == "running" else f"**Ended early**: {plain(search.ended)}.")
    return "\n\n".join(lines)


def _answers(search: Search) -> str:
    slo = search.slo_rate
    rows = [_row("saturation, requests/s", search.saturation), _row("knee, sessions/s", search.knee),
            _row("holds the limits up to, sessions/s", slo)]
    text = table(["", "value", "between", "and", "but"], rows)
    settings = search.settings
    if slo.low is not None and settings.get("slo"):
        text += (f"\n\nAt {cell(slo.low)} sessions/s {settings['slo']} is met by {float(settings['attain']):.1%} of "
                 "requests or more, at 95 % confidence.")
    if search.saturation_tokens_per_s is not None:
        text += f"\n\nAt saturation: {cell(search.saturation_tokens_per_s)} output tokens/s."
    return text


def _row(name: str, answer: SearchAnswer) -> list[str]:
    value = "not found" if answer.value is None else cell(answer.value)
    return [name, value, cell(answer.low), cell(answer.high), plain(answer.why)]


def _notes(search: Search) -> str:
    return "\n".join(f"- {plain(note)}" for note in search.notes)


def _curve(title: str, unit: str, points: Sequence[Point]) -> str:
    if not points:
        return ""
    rows = []
    for p in sorted(points, key=lambda p: (p.rate or 0.0, p.concurrency or 0)):
        load = cell(p.rate) if p.rate is not None else str(p.concurrency)
        figures: list[Figure] = [p.figures.get(name) for name in _FIGURES]
        share = "" if p.good_share is None else f"{p.good_share:.1%} ({p.good_low:.1%} .. {p.good_high:.1%})"
        verdict = "void" if not p.valid else {True: "holds", False: "fails", None: ""}[p.holds]
        rows.append([load, p.phase, str(p.offered), cell(p.served_per_s), *map(cell, figures), share, verdict])
    return f"{title}, latencies in ms:\n\n" + table(
        [unit, "phase", "requests", "served/s", *_HEADS, "held the limits (95 %)", ""], rows)
