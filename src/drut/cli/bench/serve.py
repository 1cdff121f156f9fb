"""`drut bench serve`: measures one server under load."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from drut.cli.bench.flags import (
    add_judgement,
    add_load,
    add_target,
    billing_of,
    settings_of,
    slo_of,
    target_of,
    with_model,
    with_workload,
    work_of,
    workers_of,
)
from drut.cli.bench.folder import latest_comparable, name_of, result_folder
from drut.cli.bench.foreign import add_foreign
from drut.errors import RequestError

if TYPE_CHECKING:
    from drut.bench.load.wire import MeasureWindow
    from drut.bench.result.schema import Result
    from drut.bench.run import BenchRun
    from drut.bench.sweep.schema import Sweep
    from drut.cli.bench.loads import Load

SUMMARY = "measure a server under load"
DESCRIPTION = (
    "Sends a workload to a server, from a number of users or at a rate, and reports the latencies and rates of its "
    "users. Writes DIR/result.json, requests.csv and summary.md; for several loads a folder for each, and summary.json "
    "and summary.csv. Exits with 3 if a run is void, with 130 if it was interrupted.")
EXAMPLES = (
    ("drut bench serve --url http://127.0.0.1:8000", "4 users chat for a minute"),
    ("drut bench serve --url http://127.0.0.1:8000 --rate 2 --duration 120 --slo ttft=500,tpot=50",
     "2 sessions per second, and limits that a good request keeps"),
    ("drut bench serve --url http://127.0.0.1:8000 --users 1,4,16 --workload synthetic:input=512,output=128",
     "a run for each number of users, exact lengths"),
    ("drut bench serve --url http://127.0.0.1:8000 --dataset mine.jsonl --rate inf --num-requests 200",
     "200 requests of a file, all at once"),
)
VOID_EXIT, INTERRUPT_EXIT = 3, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the server, the load, and the results."""
    add_target(parser)
    add_load(parser)
    add_judgement(parser)
    add_foreign(parser)


def run(args: argparse.Namespace) -> int:
    """Measures at each load; returns 3 if a run is void, 130 if it was interrupted; files are written in all cases."""
    from drut.bench.load.fleet import LoadPlan
    from drut.bench.run import BenchRun
    from drut.cli.bench.loads import SEED_STEP, loads_of, loop_of, window_of

    loads, window = loads_of(args), window_of(args)
    seeds = [args.seed + SEED_STEP * i for i in range(len(loads))]
    loops = [loop_of(args, load, window, seed) for load, seed in zip(loads, seeds, strict=True)]
    workers = [workers_of(args, loop, args.num_requests) for loop in loops]
    slo, billing, work = slo_of(args), billing_of(args), work_of(args)
    if not 0 <= args.max_error_rate <= 1:
        raise RequestError(f"--max-error-rate must be from 0 to 1, not {args.max_error_rate}")
    args = with_model(with_workload(args))
    target = target_of(args)
    runs = [BenchRun(LoadPlan(target, window, loop, n), work, requests=args.num_requests, tokenizer=args.tokenizer,
                     chat=args.api == "chat", ids=args.token_ids, seed=seed, slo=slo, most_errors=args.max_error_rate,
                     arrivals=not args.no_arrivals, server_pid=args.server_pid, billing=billing,
                     metrics_url=None if args.no_metrics else args.metrics_url or args.url,
                     settings=_settings(args, load, window, seed, n))
            for load, loop, n, seed in zip(loads, loops, workers, seeds, strict=True)]
    with result_folder(args.out, name_of(args.workload)) as folder:
        if len(runs) == 1:
            return _one(args, runs[0], folder)
        return _sweep(args, loads, runs, folder)


def _settings(args: argparse.Namespace, load: Load, window: MeasureWindow, seed: int, workers: int) -> dict[str, Any]:
    """Returns the flags of one run, with the values that hold for it."""
    settings = settings_of(args, workers)
    del settings["users"]
    rate = "inf" if load.rate == math.inf else load.rate
    return {**settings, "rate": rate, "concurrency": load.users, "seed": seed, "warmup": window.begin,
            "duration": None if window.endless else window.length}


def _one(args: argparse.Namespace, asked: BenchRun, folder: Path) -> int:
    from drut.bench.load.halt import INTERRUPTED
    from drut.bench.report.files import write

    result, halted = _measured(args, asked)
    try:
        write(result, folder)
    finally:  # the results are printed even if writing fails, for example on a full disk
        if args.json:
            print(_short(result, folder))
        else:
            _show(asked, result, folder)
    if halted == INTERRUPTED:
        return INTERRUPT_EXIT
    return 0 if result.validity.valid else VOID_EXIT


def _sweep(args: argparse.Namespace, loads: Sequence[Load], runs: Sequence[BenchRun], folder: Path) -> int:
    """Measures at each load, and writes the summary after each."""
    import msgspec

    from drut.bench.files import make_folder
    from drut.bench.load.halt import INTERRUPTED
    from drut.bench.report.files import write
    from drut.bench.result.build import environment
    from drut.bench.sweep.files import save
    from drut.bench.sweep.schema import SCHEMA, Sweep, SweepPoint

    settings = {name: value for name, value in runs[0].settings.items() if name not in ("rate", "concurrency", "seed")}
    sweep = Sweep(schema=SCHEMA, by="users" if loads[0].rate is None else "rate", settings=settings,
                  environment=environment(time.time()), points=[], slo=runs[0].slo)
    try:
        for i, (load, asked) in enumerate(zip(loads, runs, strict=True)):
            result, halted = _measured(args, asked, f"{i + 1}/{len(runs)}")
            make_folder(folder / load.folder)
            write(result, folder / load.folder)
            sweep.points.append(SweepPoint.of(result, load.folder))
            if halted == INTERRUPTED:
                sweep = msgspec.structs.replace(sweep, ended=INTERRUPTED)
            save(sweep, folder)
            if sweep.ended:
                return INTERRUPT_EXIT
    finally:
        if args.json:
            print(msgspec.json.encode(sweep).decode())
        elif sweep.points:
            _show_sweep(runs[0], sweep, folder)
    return 0 if all(point.valid for point in sweep.points) else VOID_EXIT


def _measured(args: argparse.Namespace, asked: BenchRun, title: str = "") -> tuple[Result, str | None]:
    from drut.bench.load.progress import ProgressLine
    from drut.bench.run import measure

    with ProgressLine(asked.plan.window, asked.requests, title=title, quiet=args.quiet) as line:
        return measure(asked, line.show)


def _show(asked: BenchRun, result: Result, folder: Path) -> None:
    from drut.bench.sweep.schema import SweepPoint
    from drut.cli.bench.tables import lines, result_parts, show

    before = latest_comparable(folder, name_of(asked.settings["workload"]), result)
    compare = {} if before is None else {"compare": f"drut bench diff {quote(str(before))} {quote(str(folder))}"}
    about = f"{result.summary.window_s:.3g} s measured from {result.environment['started']}"
    show(*_head(asked, SweepPoint.of(result, "").load, about), *result_parts(result, asked.slo), "",
         lines(files=f"{folder}/result.json, requests.csv, summary.md",
               report=f"drut bench report {quote(str(folder))}", **compare))


def _show_sweep(asked: BenchRun, sweep: Sweep, folder: Path) -> None:
    from drut.cli.bench.tables import lines, show, sweep_parts

    show(*_head(asked, "", f"a run at each load, from {sweep.environment['started']}"), *sweep_parts(sweep), "",
         lines(files=f"{folder}/summary.json, summary.csv, {sweep.points[0].folder}/, ...",
               report=f"drut bench report {quote(str(folder))}"))


def _head(asked: BenchRun, load: str, about: str) -> list[str]:
    """Returns the first lines: the server, the work, and `about`."""
    from drut.bench.render.tables import printable

    settings = asked.settings
    parts = [settings["workload"], load, settings["slo"] and f"SLO {settings['slo']}"]
    return [printable(f"{settings['model']} at {settings['url']}"),
            printable(", ".join(part for part in parts if part)), about, ""]


def _short(result: Result, folder: Path) -> str:
    import msgspec

    parts = {name: getattr(result, name) for name in ("validity", "steady", "summary")}
    return msgspec.json.encode({**parts, "out": str(folder)}).decode()
