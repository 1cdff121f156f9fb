"""A server's behaviour while it generates the largest replies it allows: latency of /health, another client, memory.

    .venv/bin/python -m benchmarks.serving.large_replies

The model is a tiny one with random weights, so that nearly all the time is spent on the replies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.cli import tiny

CONTEXT = 8192
PROMPT = 8000
LOGPROBS = 20
SMALL = {"prompt": "hi", "max_tokens": 2}


def ask(url: str, path: str, body: dict[str, Any] | None = None) -> tuple[float, int]:
    """Returns the seconds until the reply has been read, and its bytes."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    begun, size = time.perf_counter(), 0
    with urllib.request.urlopen(request, timeout=600) as reply:
        while part := reply.read(1 << 16):
            size += len(part)
    return time.perf_counter() - begun, size


def memory_mb(pid: int) -> float:
    """Returns the resident memory of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    kb = 0
    for each in (pid, *map(int, children)):
        for line in Path(f"/proc/{each}/status").read_text().splitlines():
            kb += int(line.split()[1]) if line.startswith("VmRSS") else 0
    return kb / 1e3


def large(kind: str, choices: int) -> tuple[str, dict[str, Any]]:
    ids = [97 + i % 26 for i in range(PROMPT)]
    if kind == "echo":
        return "/v1/completions", {"prompt": ids, "n": choices, "echo": True, "logprobs": LOGPROBS, "max_tokens": 1}
    if kind == "scored":
        return "/v1/completions", {"prompt": ids, "n": choices, "prompt_logprobs": LOGPROBS, "max_tokens": 1}
    messages = [{"role": "user", "content": "go"}]
    return "/v1/chat/completions", {"messages": messages, "n": choices, "logprobs": True, "top_logprobs": LOGPROBS,
                                    "max_tokens": 1000, "logit_bias": {str(tiny.EOS): -100}, "temperature": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--max-reply-mb", type=float, default=64)
    parser.add_argument("--clients", type=int, default=1, help="large replies requested at a time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "tiny.gguf"
        model.write_bytes(tiny.model(llama__context_length=CONTEXT))
        command = [sys.executable, "-m", "drut", "serve", str(model), "--port", "0", "--no-request-log",
                   "--max-reply-mb", str(options.max_reply_mb), "--served-model-name", "tiny"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            measure(server, options)
        finally:
            server.terminate()
            server.wait()


def measure(server: subprocess.Popen[str], options: argparse.Namespace) -> None:
    assert server.stderr is not None
    url = ""
    for line in server.stderr:
        if line.startswith("listening on"):
            url = line.split()[2].rstrip(",")
        if line.startswith("ready"):
            break
    threading.Thread(target=server.stderr.read, daemon=True).start()
    ask(url, "/v1/completions", SMALL)
    print("reply      | MB   | s    | /health P50, P99, max ms | small request max s | memory MB")
    for kind in ("echo", "scored", "chat"):
        choices = 1
        while choices <= 128 and allowed(url, *large(kind, choices + 1)):
            choices += 1
        print(row(url, server.pid, kind, choices, options.clients))


def row(url: str, pid: int, kind: str, choices: int, count: int) -> str:
    """Measures while `count` clients request such a reply."""
    before, results, over = memory_mb(pid), list[tuple[float, int]](), threading.Event()
    health, others, peak = list[float](), list[float](), before
    clients = [threading.Thread(target=lambda: results.append(ask(url, *large(kind, choices)))) for _ in range(count)]

    def small_requests() -> None:
        while not over.is_set():
            others.append(ask(url, "/v1/completions", SMALL)[0])

    other = threading.Thread(target=small_requests)
    for thread in (*clients, other):
        thread.start()
    while any(client.is_alive() for client in clients):
        health.append(ask(url, "/health")[0])
        peak = max(peak, memory_mb(pid))
        time.sleep(0.005)
    over.set()
    other.join()
    health.sort()
    p50, p99 = (1e3 * health[min(len(health) - 1, int(len(health) * q))] for q in (0.5, 0.99))
    size = max(size for _, size in results) / 1e6
    return (f"{kind:6} n={choices:3} | {size:4.1f} | {max(s for s, _ in results):4.1f} | "
            f"{p50:6.1f} {p99:6.1f} {1e3 * health[-1]:6.1f}     | {max(others):6.2f}              | "
            f"{before:.0f} to {peak:.0f}")


def allowed(url: str, path: str, body: dict[str, Any]) -> bool:
    """Returns whether a reply of that size is allowed; a deadline in the past stops an allowed one."""
    try:
        ask(url, path, body | {"deadline_s": 1e-6})
    except urllib.error.HTTPError as error:
        return error.code == 504
    return True


if __name__ == "__main__":
    main()
