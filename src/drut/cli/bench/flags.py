"""Flags shared by the commands that load a server, and the objects made from them."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from drut.errors import RequestError

DEFAULT_WORKLOAD, DEFAULT_USERS, DEFAULT_DURATION_S, DEFAULT_WARMUP_S = "chat:max_tokens=128", 4, 60.0, 5.0
Group = argparse._ArgumentGroup


def add_target(parser: argparse.ArgumentParser, needed: bool = True) -> None:
    """Adds the server and the form of requests. `needed`: its URL must be given."""
    group = parser.add_argument_group("the server")
    group.add_argument("--url", required=needed, metavar="U", help="such as http://127.0.0.1:8000, with "
                       "/v1 or without, or with the path of chats or completions; a query is sent with every request")
    group.add_argument("--endpoint", metavar="PATH", help="added to --url for requests, such as /chat/completions "
                       "(default: by --api, after /v1 where the URL has no version)")
    group.add_argument("--model", metavar="M", help="the model's name in requests (default: the server's only one)")
    group.add_argument("--tokenizer", metavar="NAME", help="known model, folder or file whose tokenizer is the "
                       "server's (default: --model, if that has one here)")
    group.add_argument("--api-key", metavar="KEY", help="sent as Authorization: Bearer (default: $OPENAI_API_KEY)")
    group.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="a further header")
    group.add_argument("--body", default="{}", metavar="JSON", help="further fields of every request, such as "
                       "'{\"temperature\": 0}'")
    group.add_argument("--no-stream", action="store_true", help="request whole answers: only E2E can be measured then")
    group.add_argument("--continuous-usage", action="store_true", help="request the number of tokens with each chunk "
                       "of a stream (vLLM); not every server supports it")
    group.add_argument("--timeout", type=float, default=600.0, metavar="S", help="maximum seconds of a request "
                       "(default: 600)")
    group.add_argument("--insecure", action="store_true", help="do not check the server's certificate")
    group.add_argument("--ca", metavar="FILE", help="certificates to trust instead of the system's")


def add_load(parser: argparse.ArgumentParser) -> None:
    """Adds the work and its schedule."""
    group = parser.add_argument_group("the load")
    add_work(group)
    how = group.add_mutually_exclusive_group()
    how.add_argument("--rate", metavar="R[,R...]", help="open loop: sessions that arrive per second; inf: all at once, "
                     "with --num-requests; several: a run at each")
    how.add_argument("--users", metavar="N[,N...]", help="closed loop: users who each begin a session when their last "
                     f"one is over (default: {DEFAULT_USERS}); several: a run at each")
    add_arrivals(group, "constant", "poisson", "gamma", "trace", more="; trace: at the times of the workload's trace, "
                 "without --rate")
    group.add_argument("--ramp-to", type=float, metavar="R", help="the rate changes linearly from --rate to this over "
                       "the measured window")
    length = group.add_mutually_exclusive_group()
    length.add_argument("--duration", type=float, metavar="S", help="seconds of the measured window (default: "
                        f"{DEFAULT_DURATION_S:g})")
    length.add_argument("--num-requests", type=int, metavar="N", help="measure N requests from the first to the last "
                        "instead, without a warm-up")
    group.add_argument("--warmup", type=float, metavar="S", help="seconds of the same load before the measured window "
                       f"(default: {DEFAULT_WARMUP_S:g})")
    group.add_argument("--grace", type=float, default=60.0, metavar="S", help="maximum seconds that measured requests "
                       "are waited for after the window; then they have failed (default: 60)")


def add_work(group: Group) -> None:
    """Adds the work, without its schedule."""
    work = group.add_mutually_exclusive_group()
    work.add_argument("--workload", metavar="W", help="the workload: NAME or NAME:KEY=VALUE,...; `drut bench "
                      f"workloads` lists them (default: {DEFAULT_WORKLOAD})")
    work.add_argument("--dataset", metavar="FILE.jsonl", help="your own requests, a JSON object in each line: prompt, "
                      "messages or conversations, and optionally max_tokens or output_tokens")
    group.add_argument("--api", choices=("chat", "completions"), default="chat", help="the API of requests (default: "
                       "chat)")
    group.add_argument("--token-ids", action="store_true", help="prompts of completions are token ids")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="seed of schedule and workload (default: 0)")
    group.add_argument("--workers", default="auto", metavar="N", help="client processes (default: auto, by the load "
                       "and the CPUs)")


def add_arrivals(group: Group, *kinds: str, more: str = "") -> None:
    """Adds the arrivals of sessions in an open loop."""
    group.add_argument("--arrivals", choices=kinds, help=f"arrivals of an open loop (default: poisson{more})")
    group.add_argument("--cv", type=float, metavar="X", help="coefficient of variation of gamma gaps: 1 is Poisson, "
                       "more is burstier")


def add_judgement(parser: argparse.ArgumentParser) -> None:
    """Adds limits, observations, and the output folder."""
    group = parser.add_argument_group("results")
    group.add_argument("--slo", metavar="LIMITS", help="for goodput: ttft=500,tpot=50,e2e=10s, each optional, in "
                       "milliseconds if there is no unit")
    group.add_argument("--max-error-rate", type=float, default=0.01, metavar="X", help="share of failed requests above "
                       "which the run is void (default: 0.01)")
    group.add_argument("--metrics-url", metavar="U", help="URL of the server's own metrics (default: next to --url)")
    group.add_argument("--no-metrics", action="store_true", help="do not read the server's own metrics")
    group.add_argument("--server-pid", type=int, metavar="PID", help="a server on this machine: its CPUs and memory "
                       "are measured, too")
    group.add_argument("--price", metavar="P", help="price of the server's machines: 1.20/h@2026-11-01 SOURCE, or a "
                       ".json file (docs/metrics.md); gives cost by request and token")
    group.add_argument("--input-busy-share", type=float, metavar="X", help="share of the server's busy time for "
                       "prompts, which splits the cost between input and output")
    group.add_argument("--out", metavar="DIR", help="folder for the files; files of an earlier run are replaced "
                       "(default: a new folder, runs/DATE-WORKLOAD)")
    group.add_argument("--no-arrivals", action="store_true", help="omit the arrival times of chunks from the file")
    group.add_argument("--json", action="store_true", help="print the results as one JSON object instead of tables")
    group.add_argument("--quiet", action="store_true", help="no progress")


def slo_of(args: argparse.Namespace) -> Any:
    """Returns the limits of --slo; None if there are none."""
    from drut.bench.metrics.request import Slo

    return Slo.parse(args.slo) if args.slo else None


def target_of(args: argparse.Namespace) -> Any:
    """Returns the `Target` of the flags."""
    from drut.bench.load.client import Target

    return Target(url=args.url, model=args.model, endpoint=args.endpoint, headers=_headers(args), body=_body(args.body),
                  stream=not args.no_stream, continuous_usage=args.continuous_usage, timeout_s=args.timeout,
                  verify_tls=not args.insecure, ca_file=args.ca)


def work_of(args: argparse.Namespace) -> Any:
    """Returns the workload of --workload or --dataset: its text, or an `OwnFile`, whose name may have commas."""
    from drut.bench.workloads.jsonl import OwnFile

    return OwnFile(path=args.dataset) if args.dataset is not None else args.workload or DEFAULT_WORKLOAD


def with_workload(args: argparse.Namespace) -> argparse.Namespace:
    """Returns the flags with the workload in words, whichever flag names it."""
    work = f"jsonl:path={args.dataset}" if args.dataset is not None else args.workload or DEFAULT_WORKLOAD
    return argparse.Namespace(**{**vars(args), "workload": work})


def with_model(args: argparse.Namespace) -> argparse.Namespace:
    """Returns the flags with the model: without --model, the server's only one."""
    from drut.bench.address import tls_context
    from drut.bench.served import served_model

    if args.model is not None:
        return args
    model = served_model(args.url, _headers(args), tls_context(not args.insecure, args.ca))
    return argparse.Namespace(**{**vars(args), "model": model})


def workers_of(args: argparse.Namespace, loop: Any, requests: int | None = None) -> int:
    """Returns the number of client processes for a loop, by --workers; at most one per user. Raises RequestError."""
    from drut.bench.load.fleet import ClosedLoop, workers_for

    if args.workers == "auto":
        return workers_for(loop, requests)
    if not (args.workers.isascii() and args.workers.isdigit() and 1 <= int(args.workers) <= 256):
        raise RequestError(f"--workers must be auto or a number from 1 to 256, not {args.workers!r}")
    return min(int(args.workers), loop.concurrency if isinstance(loop, ClosedLoop) else 256)


def billing_of(args: argparse.Namespace) -> Any:
    """Returns the `Billing` of --price; None without a price."""
    from drut.bench.cost import parse_price
    from drut.bench.result.build import Billing

    if args.price is None:
        if args.input_busy_share is not None:
            raise RequestError("--input-busy-share requires --price")
        return None
    if args.input_busy_share is not None and not 0 <= args.input_busy_share <= 1:
        raise RequestError(f"--input-busy-share must be from 0 to 1, not {args.input_busy_share}")
    return Billing(parse_price(args.price), args.input_busy_share)


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


def settings_of(args: argparse.Namespace, workers: int) -> dict[str, Any]:
    """Returns all flags as given, for the file, without secrets."""
    from drut.bench.address import shown

    secret = ("api_key", "header", "run", "command", "bench")
    settings = {name: value for name, value in vars(args).items() if name not in secret}
    names = [header.partition(":")[0].strip() for header in args.header]
    if args.url is not None:
        settings["url"] = shown(args.url)
    return {**settings, "body": json.loads(args.body), "headers": names, "workers": workers}
