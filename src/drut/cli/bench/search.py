"""`drut bench search`: finds the maximum load of a server."""

from __future__ import annotations

import argparse
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drut.cli.bench.flags import (
    add_arrivals,
    add_target,
    add_work,
    settings_of,
    slo_of,
    with_workload,
    work_of,
    workers_of,
)
from drut.cli.bench.folder import result_folder
from drut.cli.bench.started import add_engine, target_for
from drut.errors import RequestError

SUMMARY = "find the maximum load of a server"
DESCRIPTION = (
    "Finds a saturated server's requests per second, the knee of its latency, and the highest rate that holds limits "
    "(--slo), within a budget of time: DIR/search.json, search.csv and summary.md, which are written again after each "
    "run.")
EXAMPLES = (
    ("drut bench search --url http://127.0.0.1:8000 --slo ttft=500,tpot=50", "the highest rate that keeps both limits"),
    ("drut bench search --url http://127.0.0.1:8000 --workload synthetic:input=64,output=16 --budget 15m",
     "saturation and knee of short requests"),
    ("drut bench search --engine llama.cpp --model m.gguf --slo ttft=500 --out runs/most",
     "a server that is started for it"),
)
INTERRUPT_EXIT, ENDED_EXIT = 130, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the server, the load, the goals, and the output folder."""
    add_target(parser, needed=False)
    add_engine(parser)
    load = parser.add_argument_group("the load")
    add_work(load)
    add_arrivals(load, "constant", "poisson", "gamma")
    group = parser.add_argument_group("the search")
    group.add_argument("--slo", metavar="LIMITS", help="ttft=500,tpot=50,e2e=10s, each optional, in milliseconds if "
                       "there is no unit; without limits no rate is searched for them")
    group.add_argument("--attain", type=float, default=0.95, metavar="X", help="share of requests that must hold the "
                       "limits (default: 0.95)")
    group.add_argument("--tolerance", type=float, default=0.05, metavar="X", help="precision of the rate, "
                       "as a share of it (default: 0.05)")
    group.add_argument("--users", default="1,2,4,8", metavar="N,N...", help="users of the closed loop, "
                       "doubled from there while throughput grows (default: 1,2,4,8)")
    group.add_argument("--budget", default="10m", metavar="T", help="maximum time in total, such as 90s, 10m or 1h "
                       "(default: 10m)")
    group.add_argument("--metrics-url", metavar="U", help="URL of the server's own metrics (default: next to --url)")
    group.add_argument("--no-metrics", action="store_true", help="do not read the server's own metrics")
    group.add_argument("--server-pid", type=int, metavar="PID", help="a server on this machine: its CPUs and memory "
                       "are measured, too")
    group.add_argument("--out", metavar="DIR", help="folder for the files; those of an earlier search are replaced "
                       "(default: a new folder, runs/DATE-search)")
    group.add_argument("--json", action="store_true", help="print the answers as one JSON object instead of the text")
    group.add_argument("--quiet", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    """Returns 3 if the search ended too early, 130 if it was interrupted; results are written in all cases."""
    from drut.bench.address import shown
    from drut.bench.result.build import environment
    from drut.bench.search.files import save
    from drut.bench.search.markdown import markdown
    from drut.bench.search.search import About, Searcher, Wanted

    wanted = Wanted(_seconds(args.budget), slo_of(args), args.attain, args.tolerance, _users(args.users))
    _check_load(args)
    args = with_workload(args)
    with result_folder(args.out, "search") as folder, _Line(args.quiet) as line, _terminated(), \
            target_for(args, folder) as (target, known):
        live = _live(known, target)
        where = f"at {shown(known.url)}" if args.engine is None else f"by {args.engine}"
        settings = {**settings_of(args, 0), "model": known.model}
        about = About(f"{known.model} {where}", settings, environment(time.time()))
        live.progress = line.progress
        searcher = Searcher(measure=live, wanted=wanted, about=about, clock=time.monotonic,
                            save=lambda found: save(found, folder), report=line.show)
        found = searcher.run()
        print(_short(found) if args.json else markdown(found))
    if found.ended == "interrupted":
        return INTERRUPT_EXIT
    return ENDED_EXIT if found.ended else 0


def _check_load(args: argparse.Namespace) -> None:
    """Refuses contradictory flags before anything is started or sent."""
    from drut.bench.load.fleet import ClosedLoop
    from drut.bench.load.schedule import ArrivalRate, Schedule

    if args.cv is not None and args.arrivals != "gamma":
        raise RequestError("--cv requires --arrivals gamma")
    Schedule(ArrivalRate.steady(1.0), args.arrivals or "poisson", 1.0 if args.cv is None else args.cv)
    workers_of(args, ClosedLoop(1))


def _live(args: argparse.Namespace, target: Any) -> Any:
    from drut.bench.load.fleet import ClosedLoop, LoadPlan
    from drut.bench.load.wire import MeasureWindow
    from drut.bench.run import BenchRun
    from drut.bench.search.live import Live

    template = BenchRun(LoadPlan(target, MeasureWindow(0.0, 1.0, 1.0), ClosedLoop(1)), work_of(args),
                        tokenizer=args.tokenizer, chat=args.api == "chat", ids=args.token_ids, seed=args.seed,
                        slo=slo_of(args),
                        metrics_url=None if args.no_metrics else args.metrics_url or args.url,
                        server_pid=args.server_pid)
    return Live(template, lambda loop: workers_of(args, loop), args.arrivals or "poisson",
                1.0 if args.cv is None else args.cv)


def _users(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise RequestError(f"--users must be numbers such as 1,2,4,8, not {text!r}")
    return tuple(int(part) for part in parts)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h)", text)
    if found is None:
        raise RequestError(f"--budget must be a time such as 90s, 10m or 1h, not {text!r}")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


@contextmanager
def _terminated() -> Iterator[None]:
    """Handles SIGTERM between two runs like Ctrl-C: it ends the search."""
    def hear(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Line:
    """Progress on standard error: a line per run and, on a terminal, a live line below."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console

        self._console, self._quiet = Console(stderr=True, highlight=False), quiet
        self._status = self._console.status("") if self._console.is_terminal and not quiet else None

    def __enter__(self) -> _Line:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, line: str) -> None:
        """Shows the begin of a run."""
        if not self._quiet:
            self._console.print(line, markup=False, soft_wrap=True)

    def progress(self, ask: Any, now: Any) -> None:
        """Shows the state of the run."""
        if self._status is not None:
            self._status.update(f"{max(now.elapsed_s, 0):.0f} of {ask.warmup_s + ask.window_s:.0f} s: {now.in_flight} "
                                f"in flight, {now.done} done, {now.failed} failed")


def _short(found: Any) -> str:
    import msgspec

    names = ("saturation", "knee", "slo_rate", "saturation_tokens_per_s", "notes", "ended")
    return msgspec.json.encode({name: getattr(found, name) for name in names}).decode()
