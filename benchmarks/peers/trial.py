"""Starts each engine once, sends a few requests, ends it, and prints the rows of the table in docs/engines.md.

    python -m benchmarks.peers.trial build/compare/models/NAME.json [ENGINE ...]

A row: whether it started, after how many seconds and in which versions; a chat; a streamed completion with an exact
number of tokens; whether it reported them as usage; a prompt of ids; how long it took to end, and whether all processes
ended.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from benchmarks.peers.environment import ROOT

from drut.bench.engines.engine import EngineFiles, Launch, Options
from drut.bench.engines.files import load_model_files
from drut.bench.engines.process import free_port, start
from drut.bench.engines.registry import ENGINES, find
from drut.bench.exchange import RefusedError, ToolExchange
from drut.errors import DrutError, RequestError
from drut.machine import usable_cpus

LOGS = ROOT / "build" / "compare" / "logs"
TOKENS = 24
_API = "/v1"
HEADER = ("| engine | versions | weights | ready s | MB, peak | chat | exact | usage | ids | end s |\n"
          "|---|---|---|---|---|---|---|---|---|---|")


def trial(name: str, files: EngineFiles, options: Options) -> str:
    """Returns the row. Raises DrutError if the engine does not start."""
    launch = find(name).launch(files, options, free_port())
    with start(launch, LOGS / f"trial-{name}.log") as running:
        print(f"{name}: ready in {running.ready_s:.1f} s", file=sys.stderr, flush=True)
        cells = [_chat(launch), *_completion(launch), _ids(launch)]
        memory = running.memory()
        pids, since = running.pids(), time.monotonic()
        running.stop()
        end_s = time.monotonic() - since
        left = [pid for pid in pids if psutil.pid_exists(pid)]
    versions = ", ".join(f"{package} {version}" for package, version in launch.versions.items())
    peak = f"{memory.peak_mb:.0f}" if memory else "-"
    ended = f"{end_s:.1f}" + (f", left {left}" if left else "")
    return "| " + " | ".join([name, versions, launch.weights, f"{running.ready_s:.1f}", peak, *cells, ended]) + " |"


def _chat(launch: Launch) -> str:
    body = {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 16}
    try:
        reply = json.loads(_ask(launch, "chat/completions", body))
    except RequestError as error:
        return _why(error)
    usage = reply.get("usage") or {}
    text = " ".join(str(reply["choices"][0]["message"]["content"]).split())
    return f"{usage.get('prompt_tokens')} in, {text[:30]!r}"


def _completion(launch: Launch) -> tuple[str, str]:
    """Returns whether the response had exactly the requested tokens, by which count; and whether the stream had
    usage."""
    exact = {"ignore_eos": True, "min_tokens": TOKENS} if launch.exact is None else launch.exact
    body = {"prompt": "Once upon a time", "max_tokens": TOKENS, "stream": True,
            "stream_options": {"include_usage": True}, **exact}
    events: list[dict[str, Any]] = []
    try:
        with closing(_exchange(launch)) as exchange, \
                exchange.stream(f"{_API}/completions", _body(launch, body)) as found:
            events += [json.loads(event.data) for event in found if event is not None and event.data != b"[DONE]"]
    except RequestError as error:
        return _why(error), "-"
    usage = next((event["usage"] for event in reversed(events) if event.get("usage")), None)
    pieces = sum(bool(choice.get("text")) for event in events for choice in event.get("choices", ()))
    if usage is None:
        return f"{pieces} pieces of {TOKENS}", "no"
    return f"{usage['completion_tokens']} of {TOKENS}", "yes"


def _ids(launch: Launch) -> str:
    try:
        answer = _ask(launch, "completions", {"prompt": [28, 17, 300], "max_tokens": 2})
    except RequestError as error:
        return _why(error)
    return f"yes, {(json.loads(answer).get('usage') or {}).get('prompt_tokens')} in"


def _ask(launch: Launch, path: str, body: dict[str, Any]) -> bytes:
    with closing(_exchange(launch)) as exchange:
        return exchange.post(f"{_API}/{path}", _body(launch, body))


def _exchange(launch: Launch) -> ToolExchange:
    return ToolExchange(launch.url, timeout_s=300.0)


def _body(launch: Launch, body: dict[str, Any]) -> dict[str, Any]:
    return {"model": launch.model, "temperature": 0, **body, **launch.body}


def _why(error: RequestError) -> str:
    return f"no ({error.status if isinstance(error, RefusedError) else error})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, metavar="FILE", help="a file of benchmarks.peers.files")
    parser.add_argument("names", nargs="*", metavar="ENGINE", help=f"engines:  {', '.join(ENGINES)}")
    parser.add_argument("--flags", default="", metavar="TEXT", help="further flags of the engines' own")
    args = parser.parse_args()
    files = load_model_files(args.files)
    failed = 0
    print(HEADER, flush=True)
    for name in args.names or [name for name in ENGINES if name not in ("url", "mock")]:
        try:
            print(trial(name, files, Options(len(usable_cpus()), flags=tuple(shlex.split(args.flags)))), flush=True)
        except DrutError as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
