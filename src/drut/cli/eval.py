"""`drut eval`: measures the quality of a model."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from drut.cli.opening import add_model, open_llm
from drut.cli.settings import engine_config
from drut.cli.terminal import note
from drut.config import EngineConfig, add_flags
from drut.engine.llm import LLM
from drut.errors import RequestError

HELP = """Measure perplexity, and the divergence from a reference and agreement with it, over windows of a text; and a
task's score. Without --reference the reference is the model itself with weights in float32, and an fp32 cache. The exit
code is 1 if a metric exceeds its limit."""
EXAMPLES = (
    ("drut eval smollm2-135m-instruct", "what quantization costs, against float32"),
    ("drut eval ./q4.gguf --reference ./bf16.gguf --max-divergence 0.02", "exit code 1 above a limit"),
    ("drut eval smollm2-135m-instruct --task gsm8k --questions 20", "answers to questions, too"),
)
TASKS = ("none", "gsm8k")
FIGURES = (("perplexity", "perplexity", ".4f"), ("reference_perplexity", "of the reference", ".4f"),
           ("increase", "increase", "+.3%"), ("divergence", "KL divergence, nats", ".5f"),
           ("agreement", "same likeliest token", ".2%"))
FAILED_EXIT = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--reference", metavar="MODEL", help="another model with the same vocabulary; none: only "
                        "perplexity (default: MODEL in float32)")
    parser.add_argument("--text", type=Path, metavar="FILE", help="UTF-8 (default: Shakespeare, which ships with Drut)")
    parser.add_argument("--windows", type=int, default=16, metavar="N", help="windows of text (default: 16; 0: none)")
    parser.add_argument("--tokens", type=int, default=256, metavar="N", help="tokens of a window (default: 256)")
    parser.add_argument("--task", choices=TASKS, default="none", help="questions to answer, too (default: none)")
    parser.add_argument("--questions", type=int, metavar="N",
                        help="number of questions (default: all, 58 of gsm8k)")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-increase", type=float, metavar="X",
                        help="maximum increase of perplexity over the reference's; 0.01 is 1 %%")
    limits.add_argument("--max-divergence", type=float, metavar="X", help="maximum KL divergence, nats per token")
    limits.add_argument("--min-agreement", type=float, metavar="X",
                        help="minimum share of tokens with the same likeliest id")
    limits.add_argument("--min-score", type=float, metavar="X", help="share of the task's questions")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    from drut.quality.gate import GateLimits, judge
    from drut.quality.likelihood import compare, cut
    from drut.quality.tasks import gsm8k

    config = engine_config(args)
    if args.windows < 0 or args.tokens < 2:
        raise RequestError("--windows must be 0 or more, and --tokens 2 or more")
    limits = GateLimits(args.max_increase, args.max_divergence, args.min_agreement, args.min_score)
    with ExitStack() as open_models:
        llm = open_models.enter_context(open_llm(args.model, config))
        likelihood = score = None
        if args.windows:
            rows = cut(_ids(llm, args.text), args.windows, args.tokens)
            reference = _reference(args.model, args.reference, config)
            if reference is not None:
                open_models.enter_context(reference)
            likelihood = compare(llm, reference, rows, lambda done, of: note(f"window {done} of {of}"))
        if args.task == "gsm8k":
            score = gsm8k(llm, args.questions)
    verdicts = judge(limits, likelihood, score)
    result = {"model": str(llm.files.path), "numerics_id": llm.numerics_id,
              "likelihood": msgspec.to_builtins(likelihood), "task": msgspec.to_builtins(score),
              "verdicts": msgspec.to_builtins(verdicts), "passed": all(v.held for v in verdicts)}
    print(json.dumps(result) if args.json else text(result))
    return 0 if result["passed"] else FAILED_EXIT


def _ids(llm: LLM, path: Path | None) -> list[int]:
    from drut.bench.workloads.packed import read_text

    if llm.tokenizer is None:
        raise RequestError(f"{llm.files.path.name} has no tokenizer: there is no text to measure on")
    try:
        words = read_text("shakespeare.txt") if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    return llm.tokenizer.encode(words, add_special=False)


def _reference(model: str, reference: str | None, config: EngineConfig) -> LLM | None:
    if reference == "none":
        return None
    config = replace(config, kv_dtype="fp32")
    if reference is None:
        return LLM(model, config=config, decoded=True)
    return open_llm(reference, config)


def text(result: dict[str, Any]) -> str:
    """Returns a line for each metric, with its interval, then the verdicts."""
    lines = []
    likelihood, score = result["likelihood"], result["task"]
    if likelihood:
        lines.append(f"{likelihood['windows']} windows of {likelihood['tokens']} tokens; intervals at 95 % confidence")
        for key, name, form in FIGURES:
            if likelihood[key]:
                lines.append(f"{name:<22}{_interval(likelihood[key], form)}")
    if score:
        lines.append(f"{score['task']:<22}{_interval(score['correct'], '.1%')} of {score['questions']} questions"
                     + (f", {score['unfinished']} unfinished" if score["unfinished"] else ""))
    for v in result["verdicts"]:
        doubt = "" if v["sure"] else " (within the interval)" if v["sure"] is False else ""
        held = "held" if v["held"] else "NOT HELD"
        lines.append(f"{held}: {v['figure']} {v['value']:.5g}, limit {v['limit']:g}{doubt}")
    return "\n".join(lines)


def _interval(e: dict[str, float | None], form: str) -> str:
    shown = format(e["value"], form)
    if e["low"] is None or e["high"] is None:
        return shown
    return f"{shown}  ({format(e['low'], form)} to {format(e['high'], form)})"
