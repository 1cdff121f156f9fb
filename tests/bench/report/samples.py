"""Files of every kind, made by rule: the same each time, with figures that look like those of servers."""

from __future__ import annotations

import datetime
from typing import Any, Literal

import msgspec
import numpy as np

from drut.bench.ablate import schema as ablate
from drut.bench.compare import schema as compare
from drut.bench.cost import Price
from drut.bench.load.fleet import LoadResult
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.request import Slo
from drut.bench.result.build import Billing, build
from drut.bench.result.figures import FIGURES
from drut.bench.result.schema import Result
from drut.bench.search import schema as search
from drut.bench.stats.rounds import over_rounds
from tests.bench.records import failed, record

ENVIRONMENT = {"drut": "0.1.0", "python": "3.11.2", "system": "Linux", "cpu": "Example CPU", "cpus": 2,
               "event_loop": "uvloop", "started": "2026-11-30T08:00:00+00:00"}
CELLS = [compare.Cell("chat, 1 user", "chat", 1), compare.Cell("chat, 4 users", "chat", 4),
         compare.Cell("chat, 16 users", "chat", 16), compare.Cell("long prompt, 2 users", "long-prompt", 2)]
SPEED = {"drut": 1.0, "llama.cpp": 0.82, "vllm": 0.6, "openvino": 0.96}
_WORK = {"chat": (60.0, 12.0, 128), "long-prompt": (900.0, 15.0, 64)}  # TTFT and TPOT of one user, ms; tokens
Verdict = Literal["better", "worse", "level"]


def result(*, slow: float = 1.0, seconds: float = 60.0, lost: int = 2, seed: int = 0, **settings: Any) -> Result:
    """An open loop of ten requests a second, through the code that makes real results."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(int(10 * seconds)):
        first = slow * 0.06 * float(rng.lognormal(0, 0.35))
        gaps = np.cumsum(slow * 0.012 * rng.gamma(9, 1 / 9, 11))
        records.append(record(5 + i / 10, [first, *(first + gaps)], 12, input_tokens=180, cached_tokens=60))
    records += [failed(9.0 + i, "http", detail="503 out of memory") for i in range(lost)]
    asked = {"url": "http://127.0.0.1:8000", "model": "tiny", "workload": "synthetic", "rate": 10.0, "api": "chat",
             "concurrency": None, "slo": "ttft=200", "seed": 0, "duration": seconds, **settings}
    load = LoadResult(records, MeasureWindow(5.0, 5.0 + seconds, 10.0), [0.1], False, 1.79e9)
    price = Price(datetime.date(2026, 11, 1), "list", per_hour=0.12)
    made = build(load, asked, wanted_s=seconds, slo=Slo(ttft=0.2), most_errors=0.01, billing=Billing(price, 0.4))
    return msgspec.structs.replace(made, environment=ENVIRONMENT)


def blocks(speed: dict[str, float], *, rounds: int = 6, noise: float = 0.03, seed: int = 0,
           cells: list[compare.Cell] = CELLS) -> list[compare.Block]:
    """Each contestant's turns; every odd round goes the other way."""
    rng = np.random.default_rng(seed)
    found = []
    for turn in range(rounds):
        for cell in cells:
            order = list(speed)[::-1] if turn % 2 else list(speed)
            found += [_block(turn, i, name, cell, speed[name] * float(rng.lognormal(0, noise)), rng)
                      for i, name in enumerate(order)]
    return found


def _block(turn: int, place: int, name: str, cell: compare.Cell, speed: float, rng: np.random.Generator
           ) -> compare.Block:
    first, each, tokens = _WORK[cell.workload]
    users = cell.concurrency or 1
    tpot = each * (1 + 0.09 * (users - 1)) / speed * rng.gamma(60, 1 / 60, 40)
    ttft = first * (1 + 0.3 * (users - 1)) / speed * rng.lognormal(0, 0.3, 40)
    e2e = ttft + tpot * (tokens - 1)
    rate = users * tokens * 1e3 / float(e2e.mean())
    by = {"ttft_ms": ttft, "tpot_ms": tpot, "e2e_ms": e2e}
    samples = {name: sorted(map(float, values)) for name, values in by.items()}
    figures: dict[str, Any] = {
        "output_tokens_per_s": rate, "input_tokens_per_s": 2 * rate, "requests_per_s": rate / tokens,
        "error_rate": 0.0, **{f"{key}_p{p}": float(np.percentile(values, p, method="inverted_cdf"))
                              for key, values in samples.items() for p in (50, 99)}}
    return compare.Block(turn, place, name, cell.name, True, [],
                         {k: v for k, v in figures.items() if k in FIGURES}, samples,
                         [float(rate * rng.uniform(0.85, 1.1)) for _ in range(20)],
                         f"2026-11-30T08:{turn:02}:{place:02}+00:00")


def comparison(*, factor: dict[str, float] | None = None, **more: Any) -> compare.Comparison:
    """Four engines measured, one that failed, one that cannot run, one outside the gate. `factor`: times the speed."""
    speed = {name: value * (factor or {}).get(name, 1.0) for name, value in SPEED.items()}
    done = blocks(speed, **more)
    void = msgspec.structs.replace(done[5], valid=False, reasons=["the client sent late: p99 is 9.1 ms"])
    done[5] = void
    passed = compare.GateRecord(True, [], 0.98, 0.31, 1.0, 1.0, {"agreement": 640, "gsm8k": 64, "schema_valid": 32})
    contestants = [compare.Contestant(name, name, name.title(), "measured", weights="bf16", versions={name: "1.2.3"},
                                      command=[name, "serve", "--port", "8000"], ready_s=4.2, ready_mb=512.0,
                                      peak_mb=803.0, gate=passed) for name in SPEED]
    contestants += [
        compare.Contestant("sglang", "sglang", "SGLang", "failed", "ended with 1 in round 2: out of memory",
                           remarks=["torch_native is not its fast path"]),
        compare.Contestant("tensorrt-llm", "tensorrt-llm", "TensorRT-LLM", "cannot run", "needs an NVIDIA GPU",
                           verified=False),
        compare.Contestant("mlx", "mlx", "MLX", "gate", gate=compare.GateRecord(False, ["agreement 0.41 is under 0.90"],
                                                                                0.41))]
    return compare.Comparison(
        compare.SCHEMA, {"rounds": 6, "duration": 10.0, "workloads": ["chat", "long-prompt"], "seed": 0}, ENVIRONMENT,
        "tiny-135m",
        contestants, CELLS, done, ratios(done), "drut", ["openvino reads int8 weights"], 0.12,
        rankings=[compare.Ranking(c.name, "output_tokens_per_s", [["drut", "openvino"], ["llama.cpp"], ["vllm"]])
                  for c in CELLS])


def ratios(done: list[compare.Block]) -> list[compare.Ratio]:
    """To drut, by rounds."""
    found = []
    by = {(b.round, b.cell, b.contestant): b for b in done if b.valid}
    for cell in dict.fromkeys(b.cell for b in done):
        for name in dict.fromkeys(b.contestant for b in done if b.contestant != "drut"):
            for figure in ("output_tokens_per_s", "ttft_ms_p50", "tpot_ms_p50"):
                values = [by[r, cell, name].figures[figure] / by[r, cell, "drut"].figures[figure]  # type: ignore
                          for r in range(99) if {(r, cell, name), (r, cell, "drut")} <= by.keys()]
                if len(values) < 2:
                    continue
                value, low, high = (float(x) if x is not None else 1.0 for x in over_rounds(values, logarithmic=True))
                found.append(compare.Ratio(cell, figure, name, "drut", value, low, high, len(values),
                                           _verdict(figure, low, high)))
    return found


def _verdict(figure: str, low: float, high: float) -> Verdict:
    if low <= 1 <= high:
        return "level"
    return "better" if (low > 1) == (FIGURES[figure].better == "more") else "worse"


def a_search(*, capacity: float = 8.0) -> search.Search:
    """A curve of eight rates and one of users, a bisection, a void run and one past the end."""
    def point(phase: Any, rate: float | None, users: int | None = None) -> search.Point:
        used = rate / capacity if rate is not None else (users or 0) / ((users or 0) + 3)
        wait = 60 / max(1 - used, 0.02)
        good = 1.0 if used < 0.8 else max(0.0, 1 - (used - 0.8) * 3)
        served = min(rate, capacity) if rate is not None else capacity * used
        past = used >= 1.2
        figures: dict[str, Any] = {"output_tokens_per_s": 64 * served, "requests_per_s": served, "error_rate": 0.0,
                                   "ttft_ms_p50": wait, "ttft_ms_p99": "inf" if past else 4 * wait,
                                   "tpot_ms_p50": 12 * (1 + used), "tpot_ms_p99": 20 * (1 + 2 * used),
                                   "e2e_ms_p50": wait + 800 * (1 + used), "e2e_ms_p99": 4 * wait + 1500}
        return search.Point(phase, rate, users, 400, round(400 * good), good, max(good - 0.03, 0), min(good + 0.02, 1),
                            good > 0.95, True, [], figures, 380.0, served, wait + 800 * (1 + used), "steady", 5.0, 60.0)

    def again(p: search.Point, phase: Any, part: float) -> search.Point:
        assert p.served_per_s is not None
        figures = {**p.figures, "output_tokens_per_s": 64 * part * p.served_per_s}
        return msgspec.structs.replace(p, phase=phase, served_per_s=part * p.served_per_s, figures=figures)

    points = [point("curve", capacity * x) for x in (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2)]
    points += [point("curve", None, users) for users in (1, 4, 16, 64)]
    points += [again(points[-1], "saturate", x) for x in (0.97, 0.99)]
    points += [point("bisect", capacity * x) for x in (0.78, 0.81)]
    points.append(msgspec.structs.replace(points[0], valid=False, reasons=["a client process used 91% of a CPU"]))
    return search.Search(search.SCHEMA, {"slo": "ttft=500", "workload": "chat"}, ENVIRONMENT, "drut", points,
                         search.SearchAnswer(capacity, 0.97 * capacity, 1.03 * capacity),
                         search.SearchAnswer(0.7 * capacity, 0.65 * capacity, 0.75 * capacity),
                         search.SearchAnswer(0.81 * capacity, 0.8 * capacity, 0.82 * capacity), ["Poisson arrivals"],
                         64 * capacity, turns=1.0)


def ablation(*, prefix: float = 2.4) -> ablate.Ablation:
    """Two techniques on two kinds of work, where one should help and one should not."""
    techniques = [
        ablate.Technique("prefix", "Prefix cache", "Keeps the KV of prompts and finds it again by a radix tree.", [],
                         ["--no-prefix-cache"], "It helps shared prefixes and costs nothing elsewhere."),
        ablate.Technique("chunked", "Chunked prefill", "Cuts long prompts so that others go on.", [],
                         ["--prefill", "whole"])]
    gains = {("prefix", "shared prefix"): (prefix, "helps"), ("prefix", "no prefix"): (1.0, "no effect"),
             ("chunked", "shared prefix"): (1.02, "no effect"), ("chunked", "no prefix"): (0.93, "helps")}
    cells = [compare.Cell("shared prefix", "chat", 4), compare.Cell("no prefix", "chat", 4)]
    effects = []
    for (technique, cell), (gain, expected) in gains.items():
        for figure in ("output_tokens_per_s", "ttft_ms_p50"):
            ratio = gain if figure == "output_tokens_per_s" else 1 / gain
            low, high = ratio * 0.96, ratio * 1.04
            better = (ratio > 1) == (FIGURES[figure].better == "more")
            found = "none" if low <= 1 <= high else "helps" if better else "costs"
            effects.append(ablate.Effect(technique, cell, figure, 100 * ratio, 100.0, ratio, low, high, 6,
                                         expected, found))  # type: ignore[arg-type]
    speed = {f"{t}/{state}": 1.0 for t in ("prefix", "chunked") for state in ("on", "off")}
    return ablate.Ablation(ablate.SCHEMA, {"rounds": 6}, ENVIRONMENT, "tiny-135m", techniques, cells,
                           [compare.Contestant(name, "drut", "Drut", "measured", weights="bf16") for name in speed],
                           blocks(speed, cells=cells), effects)
