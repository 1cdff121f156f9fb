"""The results of a run or a sweep as tables of a terminal, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from drut.bench.cost import amount
from drut.bench.metrics.request import Slo
from drut.bench.render.tables import cell, printable, share

if TYPE_CHECKING:
    from drut.bench.result.schema import Result
    from drut.bench.stats.distribution import Figure
    from drut.bench.sweep.schema import Sweep

MAX_COLUMNS = 80
_LATENCIES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2e"))
_SHOWN = ("p50", "p95", "p99")


def show(*parts: RenderableType) -> None:
    """Prints on standard output: with colours at a terminal, as plain text elsewhere."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, MAX_COLUMNS)
    with console.capture() as text:
        console.print(Group(*parts))
    print("\n".join(line.rstrip() for line in text.get().splitlines()))


def result_parts(result: Result, slo: Slo | None) -> list[RenderableType]:
    """Returns the tables of a run, the reasons first if it is void."""
    return [*_void(result), _rates(result, slo), Text(), _latencies(result, slo), *_failures(result), *_notes(result)]


def sweep_parts(sweep: Sweep) -> list[RenderableType]:
    """Returns a row for each load, and the reasons of void runs below."""
    table = _table("", "req/s", "tokens/s", *["good/s"] * (sweep.slo is not None), "TTFT p50", "p99", "TPOT p50",
                   "p99", "failed")
    for point in sweep.points:
        names = ("requests_per_s", "output_tokens_per_s", *["goodput_per_s"] * (sweep.slo is not None), "ttft_ms_p50",
                 "ttft_ms_p99", "tpot_ms_p50", "tpot_ms_p99")
        table.add_row(point.load, *(cell(point.figures.get(name)) for name in names), str(point.failed),
                      style="" if point.valid else "red")
    reasons = [Text(f"void: {point.load}: {printable('; '.join(point.reasons))}", style="red")
               for point in sweep.points if not point.valid]
    note = "output tokens, requests and good requests per second; times in ms"
    return [table, Text(note, style="dim"), *reasons]


def lines(**texts: str) -> Table:
    """Returns a line for each name and text; a text is never cut, so that it can be copied."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, text in texts.items():
        table.add_row(Text(name, style="dim"), Text(text, overflow="fold"))
    return table


def _table(*head: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    return table


def _void(result: Result) -> Iterator[Text]:
    for reason in result.validity.reasons:
        yield Text(f"void: {printable(reason)}", style="bold red")


def _rates(result: Result, slo: Slo | None) -> Table:
    s = result.summary
    table = _table("per second", "", "")
    table.columns[2].justify = "left"
    table.add_row("requests", cell(s.requests_per_s), f"{s.requests - s.errors.failed} of {s.requests} "
                  f"succeeded, {s.errors.failed} failed")
    table.add_row("output tokens", cell(s.output_tokens_per_s), f"{s.concurrency_mean:.3g} requests in flight, on "
                  "average")
    table.add_row("input tokens", cell(s.input_tokens_per_s), f"{share(s.cached_share)} of them cached"
                  if s.cached_share is not None else "")
    if slo is not None:
        table.add_row("goodput", cell(s.goodput_per_s), f"{share(s.good_share)} of the requests meet the SLO")
    if result.cost is not None:
        cost = result.cost
        table.add_row("cost", amount(cost.per_million_output_alone), f"{cost.currency} per million output tokens")
    return table


def _latencies(result: Result, slo: Slo | None) -> Table:
    limits: dict[str, float] = {name: limit * 1e3 for _, name in _LATENCIES if (limit := getattr(slo, name, None))}
    table = _table("ms", *_SHOWN, *["SLO"] * bool(limits))
    for title, name in _LATENCIES:
        found = getattr(result.summary, f"{name}_ms")
        if not found.n:
            continue
        limit = limits.get(name)
        cells = [_marked(getattr(found, percent), limit, bool(limits)) for percent in _SHOWN]
        table.add_row(title, *cells, *["" if limit is None else f"{limit:g}"] * bool(limits))
    return table


def _marked(value: Figure, limit: float | None, marked: bool) -> Text:
    """Returns a latency with a mark, if there is a limit; an empty mark keeps the column aligned."""
    if limit is None or value is None:
        return Text(cell(value) + "  " * marked)
    well = value != "inf" and float(value) <= limit
    return Text.assemble(cell(value), (" ✓" if well else " ✗", "green" if well else "red"))


def _failures(result: Result) -> Iterator[Text]:
    examples: dict[str, str] = {}
    for request in result.requests:
        if request.measured and request.failure is not None:
            examples.setdefault(request.failure, request.detail)
    if result.summary.errors.kinds:
        yield Text()
    for kind, number in result.summary.errors.kinds.items():
        yield Text(f"failed, {kind}: {number}, for example: {printable(examples.get(kind, ''))[:200]}", style="red")


def _notes(result: Result) -> Iterator[Text]:
    steady = result.steady
    if result.settings.get("num_requests") is not None:
        yield Text("\nThe figures include the begin and the end of the load.", style="dim")
    elif steady.verdict != "steady":
        yield Text(f"\n{steady.verdict}{': ' * bool(steady.reasons)}{'; '.join(steady.reasons)}", style="yellow")
    few: dict[str, list[str]] = {}
    for name, claims in result.claims.items():
        for claim in claims:
            if not claim.may and f"p{claim.percent}" in _SHOWN:
                few.setdefault(f"p{claim.percent}", []).append(name.removesuffix("_ms").upper())
    if few:
        listed = "; ".join(f"{percent} of {', '.join(names)}" for percent, names in few.items())
        yield Text(f"\nToo few requests for 95 % confidence: {listed}.", style="dim")
