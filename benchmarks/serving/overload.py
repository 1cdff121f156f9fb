"""An open loop at up to three times a server's capacity: what is still answered in time, and how the rest is refused.

    python -m benchmarks.serving.overload [MODEL] [--duration S] [--max-seqs N] [--max-wait-s S] [--json]

Capacity is the rate of answers in a closed loop with more users than the server runs and queues. Then requests arrive
in a Poisson process at 0.75 to 3 times that rate. A request is good if its first token comes within 1.5 times
`--max-wait-s`: an accepted request waits at most about `--max-wait-s` in the queue, and then for its own prompt. Passes
(exit code 0) if at 3 times capacity the goodput is at least 90 % of the highest at any rate, all failed requests got
429, and the 99th percentile of the TTFT of accepted requests is within that bound.

The script prints its maximum duration first, and each rate's figures as they come, on stderr. Measuring begins once the
queue has had time to fill.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np
from benchmarks.machine_load import OthersLoad
from benchmarks.report import arguments, others, table, to_json
from benchmarks.serving.server import Server, bench, served

from drut.bench.result.schema import Result

FACTORS = (0.75, 1.0, 1.5, 3.0)
SHARE, SLACK = 0.9, 1.5  # of the highest goodput; of the maximum wait
FILL_S = 8.0  # until the first requests of a closed loop, whose prompts arrive at once, are answered
ANSWER_S = 10.0  # maximum time of an answer after its first token
CLIENT_S = 3.0  # to start the load client


@dataclass(frozen=True)
class Level:
    """A rate in requests per second, and its results. TTFT in seconds, of accepted requests."""

    factor: float
    offered: float
    answered: float
    goodput: float
    refused_share: float
    other_failures: dict[str, int]
    ttft_p50_s: float
    ttft_p99_s: float
    output_tokens_per_s: float
    others_cpus: float


def run(server: Server, args, *flags: str) -> Result:
    """Runs the load client with flags for its load."""
    return bench(server, "--api", "completions", "--tokenizer", args.model, "--workload", args.workload, "--duration",
                 str(args.duration), "--grace", f"{grace_s(args):g}", "--slo", f"ttft={SLACK * args.max_wait_s:g}s",
                 "--no-arrivals", "--no-metrics", *flags)


def grace_s(args) -> float:
    """Returns the seconds that the last answers of a run may take."""
    return SLACK * args.max_wait_s + ANSWER_S


def most_s(args) -> float:
    """Returns the maximum duration of all runs in seconds."""
    each = args.duration + grace_s(args) + CLIENT_S
    return FILL_S + each + len(FACTORS) * (2 * args.max_wait_s + each)


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def capacity(server: Server, args) -> float:
    """Returns requests per second."""
    users = args.max_seqs + 8
    rate = run(server, args, "--users", str(users), "--warmup", f"{FILL_S:g}").summary.requests_per_s
    if not rate:
        raise SystemExit("no request was finished while capacity was measured")
    return rate


def level(server: Server, args, factor: float, rate: float) -> Level:
    load = OthersLoad({server.pid, server.engine})
    result = run(server, args, "--rate", f"{rate:.4f}", "--warmup", f"{2 * args.max_wait_s:g}")
    own = [r for r in result.requests if r.measured]
    refused = sum(r.status == 429 for r in own)
    failed = Counter(r.failure for r in own if r.failure is not None and r.status != 429)
    ttft = np.array([r.ttft_ms / 1e3 for r in own if r.ttft_ms is not None])
    p50, p99 = (float(np.quantile(ttft, q, method="inverted_cdf")) for q in (0.5, 0.99))
    made = Level(factor=factor, offered=len(own) / args.duration, answered=result.summary.requests_per_s,
                 goodput=result.summary.goodput_per_s or 0.0, refused_share=refused / len(own),
                 other_failures={str(kind): n for kind, n in failed.items()}, ttft_p50_s=p50, ttft_p99_s=p99,
                 output_tokens_per_s=result.summary.output_tokens_per_s or 0.0, others_cpus=load.cpus())
    report(f"{factor:g} x capacity: {made.goodput:.1f} good/s of {made.offered:.1f}, {made.refused_share:.0%} refused, "
         f"TTFT p99 {p99:.2f} s")
    return made


def main() -> int:
    parser = arguments(__doc__ or "", rounds=1)
    parser.add_argument("--duration", type=float, default=10.0, help="seconds of each rate (default: 10)")
    parser.add_argument("--max-seqs", type=int, default=8, help="the server's setting (default: 8)")
    parser.add_argument("--max-wait-s", type=float, default=2.0, help="the server's setting (default: 2)")
    parser.add_argument("--workload", default="synthetic:input=uniform:50:150,output=uniform:16:48")
    parser.add_argument("--step-ms", type=float, default=0.0, help="seconds added to each step of the engine: with a "
                        "tiny model its speed is known, whatever the machine's load (default: 0)")
    args = parser.parse_args()
    flags = ["--threads", str(args.threads), "--max-seqs", str(args.max_seqs), "--max-wait-s", str(args.max_wait_s)]
    with served(args.model, *flags, step_s=args.step_ms / 1e3) as server:
        report(f"{most_s(args):.0f} s at most")
        most = capacity(server, args)
        report(f"capacity: {most:.1f} requests/s")
        levels = [level(server, args, factor, factor * most) for factor in FACTORS]
    best, last = max(one.goodput for one in levels), levels[-1]
    passed = (last.goodput >= SHARE * best and not any(one.other_failures for one in levels)
              and last.ttft_p99_s <= SLACK * args.max_wait_s)
    if args.json:
        print(to_json(capacity=most, levels=[asdict(one) for one in levels], passed=passed))
        return int(not passed)
    print(f"capacity {most:.1f} requests/s")
    print(table(["x capacity", "offered/s", "answered/s", "good/s", "refused", "TTFT p50, s", "TTFT p99, s", "tokens/s",
                 "failed otherwise"],
                [[f"{one.factor:g}", f"{one.offered:.1f}", f"{one.answered:.1f}", f"{one.goodput:.1f}",
                  f"{one.refused_share:.0%}", f"{one.ttft_p50_s:.2f}", f"{one.ttft_p99_s:.2f}",
                  f"{one.output_tokens_per_s:.0f}", str(one.other_failures or "none")] for one in levels]))
    print(f"goodput at {last.factor:g} x capacity: {last.goodput / best:.0%} of the highest")
    print(others([asdict(one) for one in levels]))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
