"""`drut ps`: lists the running servers of this user."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from drut.cli.table import age, table
from drut.cli.terminal import note
from drut.server.life.run_file import RunningServer, running

HELP = """List the servers that `drut serve` runs on this machine for this user (those with the same DRUT_HOME), with
their running and waiting requests. DRUT_API_KEY is the key of servers that have one."""
EXAMPLES = (
    ("drut ps", "pid, model, URL, uptime and load"),
    ("drut ps --json", "the same as JSON"),
)
PATIENCE_S = 2.0
LOAD = ("vllm:num_requests_running", "vllm:num_requests_waiting")
ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # addresses that mean all of this machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the output format."""
    parser.add_argument("--json", action="store_true", help="print one JSON array")


def run(args: argparse.Namespace) -> int:
    """Prints a table; a server that does not answer in time is listed, too."""
    servers = running()
    loads = [load(server.url) for server in servers]
    now = time.time()
    if args.json:
        print(json.dumps([
            {"pid": s.pid, "model": s.model, "url": s.url, "uptime_s": round(now - s.started, 1)}
            | ({"state": found} if isinstance(found, str) else
               {"state": "ready", "running": found[0], "waiting": found[1]})
            for s, found in zip(servers, loads, strict=True)]))
    elif servers:
        print(table(["PID", "MODEL", "URL", "UPTIME", "RUNNING", "WAITING"],
                    [_row(s, found, now) for s, found in zip(servers, loads, strict=True)], right=[0, 4, 5]))
    else:
        note("no server is running: `drut serve MODEL` starts one")
    return 0


def _row(server: RunningServer, found: tuple[int, int] | str, now: float) -> list[str]:
    counts = [found, ""] if isinstance(found, str) else [str(count) for count in found]
    return [str(server.pid), server.model, server.url, age(now - server.started), *counts]


def load(url: str) -> tuple[int, int] | str:
    """Returns the numbers of running and waiting requests, or why the server does not report them."""
    parts = urlsplit(url)
    host = ANY.get(parts.hostname or "")
    address = f"{parts.scheme}://{host}:{parts.port}/metrics" if host else f"{url}/metrics"
    key = os.environ.get("DRUT_API_KEY", "").partition(",")[0]
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE_S) as reply:
            lines = reply.read().decode("utf-8", "replace").splitlines()
    except urllib.error.HTTPError as error:
        return "needs its key" if error.code == http.client.UNAUTHORIZED else f"status {error.code}"
    except (OSError, http.client.HTTPException, ValueError):
        return "no answer"
    values = {line.partition("{")[0].split(" ")[0]: line.rpartition(" ")[2] for line in lines if line.startswith(LOAD)}
    try:
        return int(float(values[LOAD[0]])), int(float(values[LOAD[1]]))
    except (KeyError, ValueError):
        return "no metrics"
