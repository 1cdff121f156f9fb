"""The section of one run: latencies, rates, their certainty, and watched metrics."""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.cost import ServingCost, amount
from drut.bench.render.section import Note, Part, ReportGroup, Section, Table
from drut.bench.render.tables import cell, share
from drut.bench.report.sections import gaps, headline
from drut.bench.report.sections.common import (
    LATENCIES,
    cumulative,
    facts,
    group,
    timeline,
    title_of,
)
from drut.bench.report.sections.watched import resources, server_side
from drut.bench.result.schema import Result
from drut.bench.stats.distribution import PERCENTS, Distribution

_LATENCIES = (("TTFT", "ttft_ms"), ("TTFT from sending", "ttft_sent_ms"), ("ITL", "itl_ms"), ("TPOT", "tpot_ms"),
              ("E2E", "e2e_ms"), ("queue, by the server", "queue_ms"))
_PLOTTED = ("ttft", "tpot", "e2e")


def section(r: Result, label: str = "") -> Section:
    """Returns the whole section. `label` is its name in plots, and distinguishes several."""
    who = label or str(r.settings.get("model", ""))
    parts: list[Part | None] = [headline.facts(r), *_alerts(r), headline.tiles(r), distributions({who: r}),
                                _timelines(r, who), latencies(r), rates(r), *_steadiness(r), *errors(r),
                                *certainty(r), costs(r.cost), server_side(r.watched), resources(r.watched), client(r),
                                facts("Machine of the client", r.environment), facts("Settings", r.settings)]
    title = f"{r.settings.get('model', '')} at {r.settings.get('url', '')}" + (f" ({label})" if label else "")
    return Section("result", title, [part for part in parts if part is not None])


def verdicts(r: Result) -> list[Note]:
    """Returns whether it may be quoted, and whether it was steady."""
    return [*_alerts(r), *_steadiness(r)]


def _alerts(r: Result) -> list[Note]:
    return [] if r.validity.valid else [Note("Void. None of these figures may be quoted:", r.validity.reasons,
                                             warning=True)]


def _steadiness(r: Result) -> list[Note]:
    steady = r.steady
    return [Note(f"Steady state: {steady.verdict}{': ' if steady.reasons else ''}{'; '.join(steady.reasons)}.")]


def latencies(r: Result) -> Table | Note:
    """Returns percentiles of each latency."""
    rows = []
    for name, field in _LATENCIES:
        d: Distribution = getattr(r.summary, field)
        if d.n:
            rows.append([name, str(d.n), str(d.failed), *(cell(getattr(d, f"p{p}")) for p in PERCENTS), cell(d.mean)])
    if not rows:
        return Note("No request finished.")
    return Table("Latencies", ["ms", "n", "failed", *(f"p{p}" for p in PERCENTS), "mean"], rows)


def rates(r: Result) -> Table:
    """Returns the rates."""
    s = r.summary
    rows = [["output tokens/s", cell(s.output_tokens_per_s)], ["input tokens/s", cell(s.input_tokens_per_s)],
            ["requests/s", cell(s.requests_per_s)]]
    if s.goodput_per_s is not None:
        rows += [["good requests/s", cell(s.goodput_per_s)], ["good, share of offered requests", share(s.good_share)]]
    if s.cached_tokens is not None:
        rows += [["cached prompt tokens", f"{s.cached_tokens} ({share(s.cached_share)})"]]
    rows += [["in flight, mean and maximum", f"{s.concurrency_mean:.2f}, {s.concurrency_max}"]]
    return Table("Rates", [f"over {s.window_s:.1f} s", ""], rows)


def errors(r: Result) -> list[Note]:
    """Returns the number of failures of each kind, with an example."""
    failures = r.summary.errors
    if not failures.failed:
        return [Note(f"{failures.offered} requests measured, none failed.")]
    examples: dict[str, str] = {}
    for request in r.requests:
        if request.measured and request.failure is not None:
            examples.setdefault(request.failure, request.detail)
    return [Note(f"{failures.failed} of {failures.offered} measured requests failed:",
                 [f"{kind}: {count}, for example: {examples.get(kind, '')}"
                  for kind, count in failures.kinds.items()])]


def certainty(r: Result) -> list[Part]:
    """Returns the claims that the run supports, and the intervals of its figures."""
    parts: list[Part] = []
    few = [f"{name.removesuffix('_ms').upper()} p{claim.percent} (has {claim.n}, needs {claim.needed})"
           for name, claims in r.claims.items() for claim in claims if not claim.may]
    if few:
        parts.append(Note("Too few samples to claim, at 95 % confidence: " + ", ".join(few) + "."))
    if not r.intervals.figures:
        return [*parts, Note("The window is too short for intervals, which need 10 blocks of a second.")]
    rows = [[_short(name), cell(i.value), f"{cell(i.low)} .. {cell(i.high)}", share(i.noise_floor)]
            for name, i in r.intervals.figures.items()]
    parts.append(Table("Intervals", ["figure", "value", "95 % interval", "noise floor"], rows))
    parts.append(Note("Two such runs that differ by less than the noise floor are indistinguishable. It covers noise "
                      "within a run, not changes from one start of a server to the next."))
    return parts


def _short(name: str) -> str:
    latency, _, percent = name.partition("_ms_p")
    return f"{LATENCIES.get(latency, latency)} p{percent}, ms" if percent else title_of(name)


def costs(c: ServingCost | None) -> Table | None:
    """Returns the costs, with the price, its date and source."""
    if c is None:
        return None
    rows = [["per request", amount(c.per_request)], ["per million output tokens, prompts included",
                                                      amount(c.per_million_output_alone)]]
    if c.input_busy_share is not None:
        rows += [["per million input tokens", amount(c.per_million_uncached_input)],
                 ["per million cached input tokens", amount(c.per_million_cached_input)],
                 ["per million output tokens", amount(c.per_million_output)],
                 ["prompts are charged with, of the time", share(c.input_busy_share)]]
    rows += [["an hour", amount(c.per_hour)], ["this run", amount(c.run)], ["price of", f"{c.date} ({c.source})"]]
    return Table("Cost", ["", c.currency], rows, "Idle time is included.")


def client(r: Result) -> Note:
    """Describes the load on the client's own machine, because a busy client measures itself."""
    use = ", ".join(f"{share:.0%}" for share in r.client.cpu)
    return Note(f"Client processes: {r.client.workers}, each using {use or 'nothing'} of a CPU; p99 of sent - "
                f"scheduled {cell(r.summary.lag_ms.p99)} ms.")


def distributions(results: dict[str, Result]) -> ReportGroup | None:
    """Plots the latencies of one or several runs, with the limits that all of them have."""
    plots = []
    failed = {label: r.summary.errors.failed for label, r in results.items()}
    shared = shared_limits(list(results.values()))
    for key in _PLOTTED:
        by = {label: [v for q in r.requests if q.measured and (v := getattr(q, f"{key}_ms")) is not None]
              for label, r in results.items()}
        plots.append(cumulative(LATENCIES[key], f"{LATENCIES[key]}, ms", by, failed,
                                marks=[limit.line() for limit in shared if limit.key == key]))
    plots.insert(2, cumulative("ITL", "ITL, ms", {label: gaps.drawn(r) for label, r in results.items()},
                               failed, of="gaps"))
    return group("Distributions", plots, "Share of measured requests by maximum latency; failed ones never end. ITL: "
                 "the gaps between tokens, of all requests together.")


def shared_limits(results: Sequence[Result]) -> list[headline.LatencyLimit]:
    """Returns the limits of the first run that all others have, too."""
    found = [headline.limits(r) for r in results]
    same = [{(limit.key, limit.ms) for limit in one} for one in found]
    return [limit for limit in found[0] if all((limit.key, limit.ms) in one for one in same)]


def _timelines(r: Result, who: str) -> ReportGroup | None:
    plots = [timeline("Output tokens", "tokens/s", {who: [r.series.output_tokens]}), gaps.by_second({who: r}),
             timeline("Requests in flight", "requests", {who: [r.series.in_flight]})]
    return group("Timeline", plots, "By second of the measured window.")
