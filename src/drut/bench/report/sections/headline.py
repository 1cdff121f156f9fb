"""The top of a run's section: its circumstances and its headline figures, with marks for the limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from drut.bench.metrics.request import Slo
from drut.bench.render.section import Facts, Mark, Tile, Tiles
from drut.bench.render.tables import cell, share
from drut.bench.result.schema import ReportRequest, Result
from drut.bench.stats.distribution import Distribution, Figure
from drut.errors import RequestError

ATTAIN = 0.95  # share of requests that must keep a limit; also the default of `drut bench search --attain`


class LatencyLimit(NamedTuple):
    """The limit of one latency, and the share of measured requests that keep it (None: no request has it)."""

    key: str
    ms: float
    kept: float | None

    @property
    def mark(self) -> Literal["", "pass", "fail"]:
        """Returns whether enough requests keep it."""
        return "" if self.kept is None else "pass" if self.kept >= ATTAIN else "fail"

    @property
    def text(self) -> str:
        """Returns the limit and its share in words."""
        return f"{share(self.kept)} ≤ {time_text(self.ms)}"

    def line(self) -> Mark:
        """Returns the line of the limit in a plot of the latency."""
        return Mark(self.ms, f"SLO {time_text(self.ms)}", limit=True)


def facts(r: Result) -> Facts:
    """Returns workload, load, model, server, machine and date of a run."""
    s, env = r.settings, r.environment
    server = r.watched.server.engine if r.watched is not None and r.watched.server is not None else ""
    rows = [("Workload", str(s.get("workload") or s.get("dataset") or "")), ("Load", load(r)),
            ("Model", str(s.get("model", ""))), ("Server", f"{server} at {s.get('url', '')}".removeprefix(" at ")),
            ("Limits (SLO)", str(s.get("slo") or "none")), ("Client's machine", machine(env)),
            ("Date", date(env)),
            ("Window", f"{r.summary.window_s:.4g} s, {r.summary.requests} requests")]
    return Facts([(name, value) for name, value in rows if value])


def machine(environment: dict[str, Any]) -> str:
    """Describes a machine in one line."""
    return (f"{environment.get('cpu', '')}, {environment.get('cpus', '')} CPUs; drut "
            f"{environment.get('drut', '')}")


def date(environment: dict[str, Any]) -> str:
    """Returns when a measurement began."""
    return str(environment.get("started", "")).replace("T", " ").replace("+00:00", " UTC")


def load(r: Result) -> str:
    """Describes the load of a run."""
    users, rate = r.settings.get("concurrency"), r.settings.get("rate")
    if users is not None:
        return f"{users} user{'s' if users != 1 else ''}, closed loop"
    if rate is None:
        return "as traced"
    if rate == "inf":
        return "all at once"
    number = f"{rate:g}" if isinstance(rate, (int, float)) else str(rate)
    arrivals = r.settings.get("arrivals")
    return f"{number} session{'s' if number != '1' else ''}/s" + (f", {arrivals} arrivals" if arrivals else "")


def tiles(r: Result) -> Tiles:
    """Returns throughput, goodput and latencies, and how many requests keep the limits."""
    s, by = r.summary, {limit.key: limit for limit in limits(r)}
    found = [Tile("Throughput", cell(s.output_tokens_per_s), "tokens/s",
                  [f"{cell(s.requests_per_s)} requests/s", f"{s.errors.failed} of {s.errors.offered} failed"]),
             _goodput(r)]
    waits = (("TTFT", "ttft", s.ttft_ms), ("TPOT", "tpot", s.tpot_ms), ("ITL", "itl", s.itl_ms),
             ("E2E", "e2e", s.e2e_ms))
    found += [_latency(title, d, by.get(key)) for title, key, d in waits if d.n]
    return Tiles(found)


def _goodput(r: Result) -> Tile:
    s = r.summary
    if s.goodput_per_s is None or s.good_share is None:
        return Tile("Goodput", "n/a", about=["no limits were given (--slo)"])
    mark: Literal["pass", "fail"] = "pass" if s.good_share >= ATTAIN else "fail"
    return Tile("Goodput", cell(s.goodput_per_s), "requests/s", ["keep all limits"], mark=mark,
                limit=f"{share(s.good_share)} of requests")


def _latency(title: str, d: Distribution, limit: LatencyLimit | None) -> Tile:
    about = [f"p95 {_ms(d.p95)}", f"p99 {_ms(d.p99)}"]
    value, _, unit = _ms(d.p50).partition(" ")
    return Tile(f"{title}, median", value, unit, about, *((limit.mark, limit.text) if limit is not None else ()))


def _ms(value: Figure) -> str:
    return time_text(float(value)) if isinstance(value, (int, float)) else cell(value)


def time_text(ms: float) -> str:
    """Formats a time with three digits, in seconds from 10 s on."""
    return f"{ms / 1e3:.3g} s" if ms >= 1e4 else f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def limits(r: Result) -> list[LatencyLimit]:
    """Returns the limits of a run and the share of its measured requests that keep each; a failed request keeps
    none."""
    measured = [q for q in r.requests if q.measured]
    slo = _slo(r)
    found = {key: round(1e3 * seconds, 6) for key in _VALUE if (seconds := getattr(slo, key)) is not None}
    return [LatencyLimit(key, ms, _kept(measured, _VALUE[key], ms)) for key, ms in found.items()]


def _slo(r: Result) -> Slo:
    try:
        return Slo.parse(str(r.settings["slo"])) if r.settings.get("slo") else Slo()
    except RequestError:
        return Slo()


def _tpot(q: ReportRequest) -> float | None:
    return 0.0 if q.output_tokens == 1 and q.failure is None else q.tpot_ms


_VALUE: dict[str, Callable[[ReportRequest], float | None]] = {
    "ttft": lambda q: q.ttft_ms, "tpot": _tpot, "e2e": lambda q: q.e2e_ms}


def _kept(measured: Sequence[ReportRequest], of: Callable[[ReportRequest], float | None], most_ms: float
          ) -> float | None:
    kept = sum(q.failure is None and (value := of(q)) is not None and value <= most_ms for q in measured)
    return kept / len(measured) if measured else None
