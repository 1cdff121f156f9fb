"""`drut bench`: a server under load, and a scripted server to prove the client on."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from drut.errors import RequestError

HELP = """Measure any OpenAI-compatible server under load (serve), say what may be sent to it (workloads), or be a
server whose service times follow a script (mock)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The three commands."""
    commands = parser.add_subparsers(metavar="serve|workloads|mock", dest="bench", required=True)
    serve = commands.add_parser("serve", help="measure a server under load", description=(
        "Sends a workload to a server, by the clock (--rate) or by so many users (--concurrency), and writes what a "
        "user would have felt: DIR/result.json, requests.csv and summary.md. Exits 3 where the run is void."))
    _add_target(serve)
    _add_load(serve)
    _add_judgement(serve)
    commands.add_parser("workloads", help="name the workloads and their options")
    mock = commands.add_parser("mock", help="an OpenAI-compatible server with scripted service times")
    mock.add_argument("--script", required=True, metavar="FILE", help="what it does, in TOML or JSON (docs/mock.md)")
    mock.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    mock.add_argument("--port", type=int, default=8000, metavar="P", help="port (default: 8000; 0: any)")


def _add_target(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the server")
    group.add_argument("--url", required=True, metavar="U", help="such as http://127.0.0.1:8000, with /v1 or without")
    group.add_argument("--model", required=True, metavar="M", help="the model's name in requests")
    group.add_argument("--tokenizer", metavar="NAME", help="known model, folder or file whose tokenizer is the "
                       "server's (default: --model, where such a one is at hand)")
    group.add_argument("--api-key", metavar="KEY", help="sent as Authorization: Bearer (default: $OPENAI_API_KEY)")
    group.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="a further header")
    group.add_argument("--body", default="{}", metavar="JSON", help="further fields of every request, such as "
                       "'{\"temperature\": 0}'")
    group.add_argument("--no-stream", action="store_true", help="ask for whole answers: only E2E can be told then")
    group.add_argument("--continuous-usage", action="store_true", help="ask for the number of tokens with each piece "
                       "of a stream (vLLM); not every server takes it")
    group.add_argument("--timeout", type=float, default=600.0, metavar="S", help="most seconds of a request "
                       "(default: 600)")
    group.add_argument("--insecure", action="store_true", help="do not check the server's certificate")
    group.add_argument("--ca", metavar="FILE", help="certificates to trust instead of the system's")


def _add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the load")
    group.add_argument("--workload", required=True, metavar="W", help="what is sent: NAME or NAME:KEY=VALUE,...; "
                       "`drut bench workloads` names them all")
    group.add_argument("--api", choices=("chat", "completions"), default="chat", help="where requests go (default: "
                       "chat)")
    group.add_argument("--token-ids", action="store_true", help="prompts of completions are token ids")
    how = group.add_mutually_exclusive_group()
    how.add_argument("--rate", type=float, metavar="R", help="open loop: sessions that arrive in a second")
    how.add_argument("--concurrency", type=int, metavar="C", help="closed loop: users who each begin a session when "
                     "the last one is over")
    group.add_argument("--arrivals", choices=("constant", "poisson", "gamma", "trace"), help="of an open loop "
                       "(default: poisson; trace: when the workload's trace says, without --rate)")
    group.add_argument("--cv", type=float, metavar="X", help="coefficient of variation of gamma gaps: 1 is Poisson, "
                       "more is burstier")
    group.add_argument("--ramp-to", type=float, metavar="R", help="the rate goes straight from --rate to this over "
                       "the measured window")
    group.add_argument("--warmup", type=float, default=5.0, metavar="S", help="seconds of the same load before the "
                       "measured window (default: 5)")
    group.add_argument("--duration", type=float, required=True, metavar="S", help="seconds that are measured")
    group.add_argument("--grace", type=float, default=60.0, metavar="S", help="most seconds that measured requests "
                       "are waited for after the window; then they have failed (default: 60)")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of the schedule and the workload (default: 0)")
    group.add_argument("--workers", default="auto", metavar="N", help="client processes (default: auto, by the load "
                       "and the CPUs)")


def _add_judgement(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what comes of it")
    group.add_argument("--slo", metavar="LIMITS", help="for goodput: ttft=500,tpot=50,e2e=10s, each optional, in "
                       "milliseconds where no unit stands")
    group.add_argument("--max-error-rate", type=float, default=0.01, metavar="X", help="share of failed requests past "
                       "which the run is void (default: 0.01)")
    group.add_argument("--metrics-url", metavar="U", help="where the server's own metrics are (default: beside --url)")
    group.add_argument("--no-metrics", action="store_true", help="leave the server's own metrics alone")
    group.add_argument("--server-pid", type=int, metavar="PID", help="a server here: its CPUs and memory are "
                       "told as well")
    group.add_argument("--price", metavar="P", help="of the server's machines: 1.20/h@2026-11-01 SOURCE, or a .json "
                       "file (docs/metrics.md); gives cost by request and token")
    group.add_argument("--input-busy-share", type=float, metavar="X", help="share of the server's busy time that "
                       "prompts took, which splits the cost between input and output")
    group.add_argument("--out", required=True, metavar="DIR", help="folder for the files; those of a run before "
                       "are replaced")
    group.add_argument("--no-arrivals", action="store_true", help="leave the arrivals of every piece out of the file")
    group.add_argument("--json", action="store_true", help="print validity, steady state and summary as one JSON "
                       "object instead of the text")
    group.add_argument("--quiet", action="store_true", help="no progress")


VOID_EXIT, INTERRUPT_EXIT = 3, 130


def run(args: argparse.Namespace) -> int:
    """Runs the command. A run that is void exits with 3, an interrupted one with 130, the files written
    all the same."""
    if args.bench == "mock":
        from drut.bench.mock import serve_script

        if not 0 <= args.port <= 65535:
            raise RequestError(f"--port must be from 0 to 65535, not {args.port}")
        serve_script(args.script, args.host, args.port)
        return 0
    if args.bench == "workloads":
        from drut.bench.workloads import help_text

        print(help_text())
        return 0
    return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    from drut.bench.address import tls_context
    from drut.bench.load.halt import INTERRUPTED
    from drut.bench.metrics.request import Slo
    from drut.bench.report.build import build
    from drut.bench.report.files import make_folder, write
    from drut.bench.report.markdown import markdown
    from drut.bench.report.progress import ProgressLine
    from drut.bench.tokens import counting
    from drut.bench.watch import Watch

    plan = _plan(args)
    slo = Slo.parse(args.slo) if args.slo else None
    if not 0 <= args.max_error_rate <= 1:
        raise RequestError(f"--max-error-rate must be from 0 to 1, not {args.max_error_rate}")
    billing = _billing(args)
    folder = Path(args.out)
    make_folder(folder)
    tls = tls_context(not args.insecure, args.ca)
    metrics = None if args.no_metrics else args.metrics_url or args.url
    watch = Watch(metrics, plan.target.headers, args.server_pid, tls)
    sessions, tokenizer = _workload(args, plan.target.headers, tls)
    with watch, ProgressLine(plan.window, quiet=args.quiet) as line:
        load = _load(plan, sessions, line.tell)
    settings = _settings(args, plan.workers) | {"work": sessions.describe()}
    result = build(load, settings, wanted_s=args.duration, slo=slo, most_errors=args.max_error_rate,
                   count=counting(tokenizer) if tokenizer else None, arrivals=not args.no_arrivals,
                   watched=watch.result, billing=billing)
    try:
        write(result, folder)
    finally:  # a full disk must not take the figures too
        print(_short(result) if args.json else markdown(result))
    if load.halted == INTERRUPTED:
        return INTERRUPT_EXIT
    return 0 if result.validity.valid else VOID_EXIT


def _short(result: Any) -> str:
    import msgspec

    return msgspec.json.encode({name: getattr(result, name) for name in ("validity", "steady", "summary")}).decode()


def _load(plan: Any, sessions: Any, tell: Any) -> Any:
    """The run, which SIGINT and SIGTERM end early. Raises KeyboardInterrupt where they left nothing to tell."""
    from drut.bench.load.fleet import run_load
    from drut.bench.load.halt import Halt

    halt = Halt()

    async def loaded() -> Any:
        with halt.on_signals():
            return await run_load(plan, sessions, tell, halt)

    try:
        load = asyncio.run(loaded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    if halt.interrupted and not load.window.length:
        raise KeyboardInterrupt
    return load


def _plan(args: argparse.Namespace) -> Any:
    from drut.bench.load.client import Target
    from drut.bench.load.fleet import ClosedLoop, LoadPlan, OpenLoop, workers_for
    from drut.bench.load.wire import Window

    for name, least in (("duration", 1e-3), ("warmup", 0.0), ("grace", 0.0)):
        if not least <= getattr(args, name) < 1e7:
            raise RequestError(f"--{name} must be a number of seconds from {least:g} on, not {getattr(args, name)}")
    window = Window(args.warmup, args.warmup + args.duration, args.grace)
    target = Target(url=args.url, model=args.model, headers=_headers(args), body=_body(args.body),
                    stream=not args.no_stream, continuous_usage=args.continuous_usage, timeout_s=args.timeout,
                    verify_tls=not args.insecure, ca_file=args.ca)
    if args.concurrency is not None:
        for name in ("arrivals", "cv", "ramp_to"):
            if getattr(args, name) is not None:
                raise RequestError(f"--{name.replace('_', '-')} is of an open loop, and --concurrency is a closed one")
        loop: OpenLoop | ClosedLoop = ClosedLoop(args.concurrency)
    else:
        loop = OpenLoop(_schedule(args))
    if args.workers == "auto":
        return LoadPlan(target, window, loop, workers_for(loop))
    if not (args.workers.isascii() and args.workers.isdigit() and 1 <= int(args.workers) <= 256):
        raise RequestError(f"--workers must be auto or a number from 1 to 256, not {args.workers!r}")
    most = args.concurrency if args.concurrency is not None else int(args.workers)
    return LoadPlan(target, window, loop, min(int(args.workers), most))


def _billing(args: argparse.Namespace) -> Any:
    from drut.bench.cost import parse_price
    from drut.bench.report.build import Billing

    if args.price is None:
        if args.input_busy_share is not None:
            raise RequestError("--input-busy-share is of --price")
        return None
    if args.input_busy_share is not None and not 0 <= args.input_busy_share <= 1:
        raise RequestError(f"--input-busy-share must be from 0 to 1, not {args.input_busy_share}")
    return Billing(parse_price(args.price), args.input_busy_share)


def _schedule(args: argparse.Namespace) -> Any:
    from drut.bench.load.schedule import Rate, Schedule

    if args.arrivals == "trace":
        for name in ("rate", "cv", "ramp_to"):
            if getattr(args, name) is not None:
                raise RequestError(f"--{name.replace('_', '-')} has no use with --arrivals trace")
        return None
    if args.rate is None:
        raise RequestError("one of --rate, --concurrency and --arrivals trace is needed")
    if args.cv is not None and args.arrivals != "gamma":
        raise RequestError("--cv is of --arrivals gamma")
    end = args.rate if args.ramp_to is None else args.ramp_to
    rate = Rate(args.rate, end, args.warmup, args.warmup + args.duration)
    return Schedule(rate, args.arrivals or "poisson", 1.0 if args.cv is None else args.cv, args.seed)


def _headers(args: argparse.Namespace) -> dict[str, str]:
    headers = {}
    key = args.api_key or os.environ.get("OPENAI_API_KEY")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    for header in args.header:
        name, colon, value = header.partition(":")
        if not colon:
            raise RequestError(f"--header must be NAME:VALUE, not {header!r}")
        headers[name.strip()] = value.strip()
    return headers


def _body(text: str) -> dict[str, Any]:
    from drut.bench.work import check_body

    try:
        body = json.loads(text)
    except ValueError as error:
        raise RequestError(f"--body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestError("--body must be a JSON object")
    check_body("--body", body)
    return body


def _workload(args: argparse.Namespace, headers: dict[str, str], tls: Any) -> tuple[Any, Any]:
    """The sessions, and the target's tokenizer where there is one; a workload that needs one says so."""
    from drut.bench.tokens import open_tokenizer
    from drut.bench.workloads import load

    why = ""
    try:
        tokenizer = open_tokenizer(args.tokenizer, model=args.model, url=args.url, headers=headers, tls=tls)
    except RequestError as error:
        if args.tokenizer is not None:
            raise
        tokenizer, why = None, str(error)
    return load(args.workload, tokenizer=tokenizer, seed=args.seed, chat=args.api == "chat",
                ids=args.token_ids, no_tokenizer=why), tokenizer


def _settings(args: argparse.Namespace, workers: int) -> dict[str, Any]:
    """All flags as they came, for the file; what is secret left out."""
    secret = ("api_key", "header", "run", "command", "bench")
    settings = {name: value for name, value in vars(args).items() if name not in secret}
    names = [header.partition(":")[0].strip() for header in args.header]
    return {**settings, "body": json.loads(args.body), "headers": names, "workers": workers}
