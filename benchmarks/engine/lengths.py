"""Compares scheduling policies and reserves for requests whose lengths are unknown.

    python -m benchmarks.engine.lengths [MODEL.gguf] [--rounds N] [--seconds N] [--json]   # engine and simulator
    python -m benchmarks.engine.lengths --simulate [--seeds N] [--requests N] [--json]     # simulator alone

Lengths are drawn from the workload `reasoning` (lengths of DeepSeek-R1 users) and divided by SCALE, or from `mixed`:
nine answers in ten have some tens of tokens, the tenth is very long. Requests arrive in a Poisson process. Each has a
limit far above its length; the engine knows an answer's length only when it ends. Goodput: requests per second with
TTFT and time per output token within the SLO.

The simulator is drut.plan.simulate. It predicts steps from the model's operations at this machine's roof (`drut roof`;
without one from usual peaks); next to the engine it is corrected by the steps of an earlier run. The real engine has
one thread and works without overlap, and its seconds, including those between arrivals, are of its CPU time: so other
processes do not count, although they evict its cache lines.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np
from benchmarks.machine_load import OthersLoad
from benchmarks.report import Spread, about, arguments, others, table, to_json

from drut import LLM, SamplingParams
from drut.bench.workloads.reasoning import length_tables
from drut.config import EngineConfig
from drut.engine.build import choose_backend, record_plan
from drut.engine.memory_plan import MemoryPlan
from drut.engine.request.request import Request
from drut.engine.schedule.work import StepLimits
from drut.home import home
from drut.kernels.cost import StepShape
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.native.library import load
from drut.kernels.predictor import Predictor
from drut.model.model import open_model
from drut.model.store import resolve
from drut.plan import roof as roofs
from drut.plan.peaks import peaks
from drut.plan.probe import machine_key
from drut.plan.simulate import Arrival, Setup, SimulatedOutcome, Simulation

SCALE, MAX_PROMPT = 16, 512
MAX_TOKENS = 1024  # of every request; above the length of any answer
PAGES, SEQS, STEP_TOKENS = 64, 128, 512
TTFT_S, TPOT_S = 3.0, 0.05  # the SLO
CHOICES = {"fcfs": {}, "fcfs, half": {"reserve_quantile": 0.5}, "fcfs, 90 %": {"reserve_quantile": 0.9},
           "fcfs, limits": {"reserve_quantile": 1.0}, "aging": {"policy": "aging"},
           "least-served": {"policy": "least-served"}}
REAL = ("fcfs", "fcfs, half", "aging", "least-served")

Record = dict[str, Any]


def reasoning(rng: np.random.Generator) -> tuple[int, int]:
    inputs, outputs = TABLES
    hour = int(rng.integers(inputs.count))
    prompt, answer = inputs.draw(rng, hour) // SCALE, outputs.draw(rng, hour) // SCALE
    return min(max(1, prompt), MAX_PROMPT), min(max(1, answer), MAX_TOKENS - 1)


def mixed(rng: np.random.Generator) -> tuple[int, int]:
    return 20, 800 if rng.random() < 0.1 else int(rng.integers(3, 30))


TABLES = length_tables("all")
WORKLOADS: dict[str, Callable[[np.random.Generator], tuple[int, int]]] = {"reasoning": reasoning, "mixed": mixed}


def arrivals(workload: str, rate: float, seed: int, *, count: int) -> list[Arrival]:
    rng, at, made = np.random.default_rng(seed), 0.0, []
    for _ in range(count):
        at += float(rng.exponential(1 / rate))
        made.append(Arrival(at, *WORKLOADS[workload](rng)))
    return made


@dataclass(frozen=True)
class Figures:
    """The figures of one run; times in seconds."""

    ttft: float
    ttft_p50: float
    ttft_p99: float
    tpot_p99: float
    goodput: float
    tokens_per_s: float
    preemptions: float

    @classmethod
    def of(cls, outcomes: Sequence[SimulatedOutcome], seconds: float) -> Figures:
        ttft, tpot = np.array([o.ttft for o in outcomes]), np.array([o.tpot for o in outcomes])
        good = int(((ttft <= TTFT_S) & (tpot <= TPOT_S)).sum())
        return cls(float(ttft.mean()), float(np.median(ttft)), float(np.quantile(ttft, 0.99)),
                   float(np.quantile(tpot, 0.99)), good / seconds, sum(o.tokens for o in outcomes) / seconds,
                   sum(o.preemptions for o in outcomes))


def setup(burst: int = 16, **choice: Any) -> Setup:
    return Setup((PAGES,), StepLimits(SEQS, STEP_TOKENS, SEQS, None, burst), PAGES * PAGE_TOKENS, **choice)


def predictor(model: str) -> Predictor:
    """Returns the predictor of one thread's steps, from the model's file and this machine's stored roof."""
    library = load()
    roof = roofs.kept(home() / roofs.FILE, machine_key(library)) if library is not None else None
    config = EngineConfig(threads=1)
    files, backend = open_model(resolve(model)), choose_backend(config)
    plan = record_plan(MemoryPlan.of(files.spec, config), files.outline(backend), backend, config)
    backend.close()
    files.close()
    return Predictor(plan, peaks(roof, 1) if roof is not None else None)


def simulated(work: Sequence[Arrival], predictor: Predictor, **choice: Any) -> Figures:
    done = Simulation(setup(**choice), predictor, MAX_TOKENS).run(work)
    return Figures.of(done.outcomes, done.seconds)


def engine(args: argparse.Namespace, **choice: Any) -> LLM:
    """Creates an engine with a cache of PAGES pages that does all its work in the calling thread."""
    page_gb = 30 * 2 * 3 * 64 * 2 * PAGE_TOKENS / 1e9  # SmolLM2-135M, bf16
    return LLM(args.model, threads=1, overlap=False, kv_cache_gb=(PAGES + 0.5) * page_gb, max_seqs=SEQS,
               max_batch_tokens=STEP_TOKENS, **choice)


class CpuClock:
    """A clock of the CPU seconds of this process, plus the seconds it was advanced by."""

    def __init__(self) -> None:
        self._from = time.process_time()

    def __call__(self) -> float:
        return time.process_time() - self._from

    def skip_to(self, moment: float) -> None:
        self._from -= max(0.0, moment - self())


def served(llm: LLM, work: Sequence[Arrival], seed: int) -> tuple[Figures, list[tuple[StepShape, float]]]:
    """Serves the arrivals on the real engine, with answers ended at their lengths; also returns the seconds of its
    steps, including host time."""
    rng, core, now = random.Random(seed), llm.engine, CpuClock()
    pacing = core.scheduler.pacer.predictor
    core.cache.clear()
    core.scheduler.policy.clock = now
    prompts = [[rng.randrange(1000, 40_000) for _ in range(a.prompt)] for a in work]
    steps, observe, began = [], pacing.observe, 0.0

    def noted(shape: StepShape, _: float) -> None:
        steps.append((shape, now() - began))
        observe(*steps[-1])

    pacing.observe = noted
    now.skip_to(0.0)
    times_of: dict[Request, list[float]] = {}
    lengths: dict[Request, int] = {}
    coming, offset = 0, now()
    while coming < len(work) or core.busy:
        while coming < len(work) and now() - offset >= work[coming].at:
            params = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, temperature=1.0, seed=coming)
            (request,) = core.submit(prompts[coming], params)
            request.arrived = request.waits_since = offset + work[coming].at
            times_of[request], lengths[request] = [], work[coming].answer
            coming += 1
        if not core.busy:
            now.skip_to(offset + work[coming].at)
            continue
        began = now()
        for update in core.step():
            times_of[update.request] += [now() - offset] if update.token is not None else []
            if len(update.request.output_ids) >= lengths[update.request]:
                core.finish(update.request, "stop")
    del pacing.observe
    outcomes = [SimulatedOutcome(a, len(times), times[0], times[-1], r.why.preemptions)
                for a, (r, times) in zip(work, times_of.items(), strict=True)]
    return Figures.of(outcomes, now() - offset), steps


def spreads(runs: Sequence[Figures]) -> dict[str, Spread]:
    return {key: Spread.of([getattr(run, key) for run in runs]) for key in asdict(runs[0])}


def show(rows: Sequence[tuple[str, Sequence[Figures]]]) -> str:
    """Prints the mean over the runs, and the range of the first column."""
    head = ["", "TTFT mean, s", "p50", "p99", "TPOT p99, ms", "goodput, 1/s", "tokens/s", "preempted"]
    cells = []
    for name, runs in rows:
        mean = {key: fmean(getattr(run, key) for run in runs) for key in asdict(runs[0])}
        cells.append([name, Spread.of([r.ttft for r in runs]).text(2), f"{mean['ttft_p50']:.2f}",
                      f"{mean['ttft_p99']:.1f}", f"{1000 * mean['tpot_p99']:.0f}", f"{mean['goodput']:.2f}",
                      f"{mean['tokens_per_s']:.0f}", f"{mean['preemptions']:.0f}"])
    return table(head, cells)


def simulate(args: argparse.Namespace) -> None:
    results, known = dict[str, Record](), predictor(args.model)
    for workload, rates in {"reasoning": args.rates, "mixed": args.mixed_rates}.items():
        for rate in rates:
            rows = [(name, [simulated(arrivals(workload, rate, seed, count=args.requests), known, **choice)
                            for seed in range(args.seeds)]) for name, choice in CHOICES.items()]
            results[f"{workload} {rate:g}/s"] = {name: spreads(runs) for name, runs in rows}
            if not args.json:
                print(f"\n{workload}, {rate:g} requests/s, {args.seeds} seeds of {args.requests} requests")
                print(show(rows), flush=True)
    if args.json:
        print(to_json(results=results))


def measure(args: argparse.Namespace) -> None:
    """Runs the engines in turns on the same arrivals; the simulator gets them too, with the roof alone and corrected by
    an earlier run."""
    llms = {name: engine(args, **CHOICES[name]) for name in REAL}
    warm = arrivals("reasoning", args.rate, 99, count=max(20, round(args.rate * args.seconds / 2)))
    known = {"at the roof": predictor(args.model), "corrected": predictor(args.model)}
    for shape, seconds in served(llms["fcfs"], warm, 99)[1]:
        known["corrected"].observe(shape, seconds)
    runs: dict[str, list[Figures]] = {}
    loads = []
    for number in range(args.rounds):
        work = arrivals("reasoning", args.rate, number, count=round(args.rate * args.seconds))
        load = OthersLoad([])
        for name in REAL if number % 2 else REAL[::-1]:
            runs.setdefault(f"{name}, real", []).append(served(llms[name], work, number)[0])
            for how, predicted in known.items():
                figures = simulated(work, predicted, burst=1, **CHOICES[name])
                runs.setdefault(f"{name}, simulated {how}", []).append(figures)
        loads.append({"others_cpus": load.cpus()})
    rows = sorted(runs.items())
    if args.json:
        print(to_json(engine=about(llms["fcfs"]), rounds=loads, results={name: spreads(each) for name, each in rows}))
    else:
        print(about(llms["fcfs"]))
        print(show(rows))
        print(others(loads))
    for llm in llms.values():
        llm.close()


def main() -> int:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--simulate", action="store_true", help="run only the simulator")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the simulator alone")
    parser.add_argument("--requests", type=int, default=400, help="requests of each seed")
    parser.add_argument("--rates", type=float, nargs="+", default=[2.0, 3.6], help="requests a second, reasoning")
    parser.add_argument("--mixed-rates", type=float, nargs="+", default=[3.0, 4.5], help="the same, mixed")
    parser.add_argument("--rate", type=float, default=1.2, help="requests a second on the real engine")
    parser.add_argument("--seconds", type=float, default=40.0, help="seconds of arrivals in a round on the real engine")
    args = parser.parse_args()
    (simulate if args.simulate else measure)(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
