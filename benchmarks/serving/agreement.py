"""Whether a server's own histograms and the load client agree about one run.

    python -m benchmarks.serving.agreement [MODEL] [--rounds N] [--users N] [--duration S] [--json]

`drut bench serve` loads a `drut serve` with users in a closed loop and scrapes it before and after. Of all requests of
the run, measured or not, TTFT from sending and ITL by token are compared: the means, which a histogram has exactly, and
the median, of which it has a bucket. They agree if the means differ by at most 5 % and the client's median lies in the
server's bucket, widened by 5 % on both sides. Exit code 1 if the means of the median round, or the medians of most
rounds, do not agree.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import asdict, dataclass

import numpy as np
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, arguments, others, table, to_json
from benchmarks.serving.server import bench, served

from drut.bench.load.record import LoadRecord
from drut.bench.metrics.request import timing
from drut.bench.result.schema import ReportRequest, Result
from drut.bench.stats.distribution import Floats

TOLERANCE = 0.05


@dataclass(frozen=True)
class Pair:
    """One quantity by both, in milliseconds. The server's median lies above `low` and is at most `high`."""

    client_n: int
    server_n: int
    client_mean: float
    server_mean: float
    client_p50: float
    low: float
    high: float

    @property
    def mean_ratio(self) -> float:
        return self.client_mean / self.server_mean

    @property
    def means_agree(self) -> bool:
        return abs(self.mean_ratio - 1) <= TOLERANCE

    @property
    def medians_agree(self) -> bool:
        return (1 - TOLERANCE) * self.low <= self.client_p50 <= (1 + TOLERANCE) * self.high


def compare(result: Result) -> dict[str, Pair]:
    """Returns `ttft` and `itl` of a run; the server must have been scraped."""
    assert result.watched is not None
    assert result.watched.server is not None
    distributions = result.watched.server.distributions
    seen = {"ttft": np.zeros(0), "itl": np.zeros(0)}
    for request in result.requests:
        for name, values in of_request(request).items():
            seen[name] = np.concatenate((seen[name], values))
    pairs = {}
    for name, values in seen.items():
        low, high = distributions[name].percentiles_ms["p50"]
        pairs[name] = Pair(client_n=len(values), server_n=distributions[name].count, client_mean=float(values.mean()),
                           server_mean=distributions[name].mean_ms,
                           client_p50=float(np.quantile(values, 0.5, method="inverted_cdf")), low=low,
                           high=float("inf") if high is None else high)
    return pairs


def of_request(request: ReportRequest) -> dict[str, Floats]:
    """Returns the milliseconds of all tokens of a request, even if it was cut off at the run's end."""
    if request.sent_ms is None or not request.arrivals_ms:
        return {}
    timed = timing(LoadRecord(request.session, request.turn, 0.0, sent=request.sent_ms, arrivals=request.arrivals_ms,
                              chars=request.arrival_chars or [], reported=request.arrival_reported or [], streamed=True,
                              output_tokens=request.output_tokens))
    assert timed.ttft_sent is not None
    return {"ttft": np.array([timed.ttft_sent]), "itl": timed.itl}


def main() -> int:
    parser = arguments(__doc__ or "", rounds=3)
    parser.add_argument("--users", type=int, default=16, help="users (default: 16)")
    parser.add_argument("--duration", type=float, default=20.0, help="seconds of a round (default: 20)")
    parser.add_argument("--workload", default="synthetic:input=uniform:50:200,output=64")
    parser.add_argument("--step-ms", type=float, default=0.0, help="seconds added to each step of the engine: with a "
                        "tiny model its speed is known, whatever the machine's load (default: 0)")
    args = parser.parse_args()
    rounds = []
    with served(args.model, "--threads", str(args.threads), step_s=args.step_ms / 1e3) as server:
        for _ in range(args.rounds):
            load = OthersLoad({server.pid, server.engine})
            pairs = compare(bench(
                server, "--api", "completions", "--tokenizer", args.model, "--workload", args.workload, "--users",
                str(args.users), "--duration", str(args.duration), "--warmup", "2", "--continuous-usage"))
            rounds.append({"pairs": pairs, "others_cpus": load.cpus()})
    summary = {name: Spread.of([r["pairs"][name].mean_ratio for r in rounds]) for name in ("ttft", "itl")}
    agree = all(
        abs(summary[name].median - 1) <= TOLERANCE
        and statistics.median(r["pairs"][name].medians_agree for r in rounds) == 1 for name in summary)
    if args.json:
        print(to_json(rounds=[{**r, "pairs": {n: asdict(p) for n, p in r["pairs"].items()}} for r in rounds],
                      summary=summary))
    else:
        print_report(rounds, summary)
    return int(not agree)


def print_report(rounds, summary) -> None:
    rows = [[name.upper(), *(str(getattr(pair, side)) for side in ("client_n", "server_n")),
             *(f"{getattr(pair, side):.2f}" for side in ("client_mean", "server_mean")), f"{pair.mean_ratio:.3f}",
             f"{pair.client_p50:.2f}", f"({pair.low:g}, {pair.high:g}]"]
            for r in rounds for name, pair in r["pairs"].items()]
    print(table(["milliseconds", "n, client", "n, server", "mean, client", "mean, server", "ratio", "p50, client",
                 "p50, server"], rows))
    print("; ".join(f"{name.upper()}: client / server {spread.text(3)}" for name, spread in summary.items()))
    print(others(rounds))


if __name__ == "__main__":
    sys.exit(main())
