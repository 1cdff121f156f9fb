"""`drut bench serve`: measures one server under load."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from drut.cli.bench.flags import add_judgement, add_load, add_target, billing_of, load_plan, settings_of, slo_of
from drut.errors import RequestError

SUMMARY = "measure a server under load"
DESCRIPTION = (
    "Sends a workload to a server, by a schedule (--rate) or by a number of users (--concurrency), and writes the "
    "latencies and rates of its users: DIR/result.json, requests.csv and summary.md. Exits with 3 if the run is void.")
VOID_EXIT, INTERRUPT_EXIT = 3, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the server, the load, and the results."""
    add_target(parser)
    add_load(parser)
    add_judgement(parser)


def run(args: argparse.Namespace) -> int:
    """Measures; returns 3 if the run is void, 130 if it was interrupted; the files are written in all cases."""
    from drut.bench.files import make_folder
    from drut.bench.load.halt import INTERRUPTED
    from drut.bench.load.progress import ProgressLine
    from drut.bench.report.files import write
    from drut.bench.report.markdown import markdown
    from drut.bench.run import BenchRun, measure

    plan = load_plan(args)
    slo = slo_of(args)
    if not 0 <= args.max_error_rate <= 1:
        raise RequestError(f"--max-error-rate must be from 0 to 1, not {args.max_error_rate}")
    billing = billing_of(args)
    folder = Path(args.out)
    make_folder(folder)
    asked = BenchRun(plan, args.workload, tokenizer=args.tokenizer, chat=args.api == "chat", ids=args.token_ids,
                     seed=args.seed, slo=slo, most_errors=args.max_error_rate, arrivals=not args.no_arrivals,
                     metrics_url=None if args.no_metrics else args.metrics_url or args.url, server_pid=args.server_pid,
                     billing=billing, settings=settings_of(args, plan.workers))
    with ProgressLine(plan.window, quiet=args.quiet) as line:
        result, halted = measure(asked, line.show)
    try:
        write(result, folder)
    finally:  # the results are printed even if writing fails, for example on a full disk
        print(_short(result) if args.json else markdown(result))
    if halted == INTERRUPTED:
        return INTERRUPT_EXIT
    return 0 if result.validity.valid else VOID_EXIT


def _short(result: Any) -> str:
    import msgspec

    return msgspec.json.encode({name: getattr(result, name) for name in ("validity", "steady", "summary")}).decode()
