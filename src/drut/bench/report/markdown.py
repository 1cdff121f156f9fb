"""The summary for people. A void run says so before any figure."""

from __future__ import annotations

from drut.bench.cost import describe
from drut.bench.metrics.distribution import PERCENTS, Distribution
from drut.bench.report.plot import columns
from drut.bench.report.schema import Result
from drut.bench.report.tables import cell, plain, printable, table
from drut.bench.report.watched import resources, server_side
from drut.bench.stats.bootstrap import Interval

_LATENCIES = (("TTFT", "ttft_ms"), ("TTFT from sending", "ttft_sent_ms"), ("ITL", "itl_ms"), ("TPOT", "tpot_ms"),
              ("E2E", "e2e_ms"), ("queue, by the server", "queue_ms"))


def markdown(result: Result) -> str:
    """The whole summary."""
    parts = (_head(result), _latencies(result), _rates(result), _errors(result), _certainty(result),
             server_side(result.watched), resources(result.watched), _cost(result), _plots(result), _about(result))
    text = "\n\n".join(part for part in parts if part)
    return "\n".join(map(printable, text.split("\n")))  # names too are what others wrote


def _head(result: Result) -> str:
    settings = result.settings
    lines = [f"# {settings.get('model', '')} at {settings.get('url', '')}"]
    if not result.validity.valid:
        lines.append("**Void.** None of these figures may be quoted:\n\n"
                     + "\n".join(f"- {plain(reason)}" for reason in result.validity.reasons))
    steady = result.steady
    lines.append(f"Steady state: **{steady.verdict}**{': ' if steady.reasons else ''}{'; '.join(steady.reasons)}.")
    return "\n\n".join(lines)


def _latencies(result: Result) -> str:
    rows = []
    for name, field in _LATENCIES:
        d: Distribution = getattr(result.summary, field)
        if d.n:
            rows.append([name, str(d.n), str(d.failed), *(cell(getattr(d, f"p{p}")) for p in PERCENTS), cell(d.mean)])
    if not rows:
        return "No request finished."
    return table(["ms", "n", "failed", *(f"p{p}" for p in PERCENTS), "mean"], rows)


def _rates(result: Result) -> str:
    s = result.summary
    rows = [["output tokens/s", cell(s.output_tokens_per_s)], ["input tokens/s", cell(s.input_tokens_per_s)],
            ["requests/s", cell(s.requests_per_s)]]
    if s.goodput_per_s is not None:
        rows += [["good requests/s", cell(s.goodput_per_s)], ["good, of those offered", _share(s.good_share)]]
    if s.cached_tokens is not None:
        rows += [["cached prompt tokens", f"{s.cached_tokens} ({_share(s.cached_share)})"]]
    rows += [["in flight, mean and most", f"{s.concurrency_mean:.2f}, {s.concurrency_max}"]]
    return table([f"over {s.window_s:.1f} s", ""], rows)


def _errors(result: Result) -> str:
    errors = result.summary.errors
    if not errors.failed:
        return f"{errors.offered} requests measured, none failed."
    examples: dict[str, str] = {}
    for request in result.requests:
        if request.measured and request.failure is not None:
            examples.setdefault(request.failure, request.detail)
    lines = [f"- {kind}: {count}, such as: {plain(examples.get(kind, ''))}" for kind, count in errors.kinds.items()]
    return f"{errors.failed} of {errors.offered} measured requests failed:\n\n" + "\n".join(lines)


def _certainty(result: Result) -> str:
    parts = []
    few = [f"{name.removesuffix('_ms').upper()} p{claim.percent} (has {claim.n}, needs {claim.needed})"
           for name, claims in result.claims.items() for claim in claims if not claim.may]
    if few:
        parts.append("Too few samples to claim, at 95 % confidence: " + ", ".join(few) + ".")
    figures = result.intervals.figures
    if not figures:
        parts.append("The window is too short for intervals, which need 10 blocks of a second.")
    else:
        rows = [[name, cell(i.value), f"{cell(i.low)} .. {cell(i.high)}", _floor(i)] for name, i in figures.items()]
        parts.append(table(["figure", "value", "95 % interval", "noise floor"], rows))
        parts.append("Two such runs that differ by less than the noise floor cannot be told apart. It holds within a "
                     "run; what changes from one start of a server to the next is not in it.")
    return "\n\n".join(parts)


def _cost(result: Result) -> str:
    return "" if result.cost is None else "Cost\n\n```\n" + describe(result.cost) + "\n```"


def _plots(result: Result) -> str:
    series = result.series
    if not series.in_flight:
        return ""
    return ("```\noutput tokens in each second\n" + columns(series.output_tokens)
            + "\nrequests in flight\n" + columns(series.in_flight) + "\n```")


def _about(result: Result) -> str:
    env, client = result.environment, result.client
    cpu = ", ".join(f"{use:.0%}" for use in client.cpu)
    lag = result.summary.lag_ms.p99
    return (f"drut {env.get('drut', '')} on {env.get('cpu', '')}, {env.get('cpus', '')} CPUs, event loop "
            f"{env.get('event_loop', '')}, {env.get('started', '')}. Client processes: {client.workers}, each using "
            f"{cpu or 'nothing'} of a CPU; p99 of sent - scheduled {cell(lag)} ms.")


def _floor(interval: Interval) -> str:
    return "n/a" if interval.noise_floor is None else f"{interval.noise_floor:.1%}"


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1%}"

