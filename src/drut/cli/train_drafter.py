"""`drut train-drafter`: trains a drafter for speculative decoding."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from drut.cli.opening import add_model
from drut.cli.settings import engine_config
from drut.cli.terminal import note
from drut.config import add_flags
from drut.errors import RequestError
from drut.train.methods import METHODS
from drut.train.requirement import check_torch
from drut.train.settings import DTYPES, TrainSettings

HELP = """Train a small model whose tokens MODEL verifies (--speculate draft:model=DIR): MODEL answers the prompts of a
file, the drafter learns its distribution, and held-out prompts measure how many drafts are accepted. It needs torch.
The same command continues an interrupted run: answers and the last checkpoint, at most two minutes old, are kept."""
EXAMPLES = (
    ("drut train-drafter smollm2-135m-instruct --data prompts.jsonl --out drafter --minutes 60",
     "an hour of training, after the answers"),
    ("drut train-drafter ./target --data prompts.jsonl --out drafter --layers 0,29 --temperature 0.7",
     "two layers, for answers at a temperature"),
)
UNSET = TrainSettings()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--method", choices=list(METHODS), default=UNSET.method,
                        help="; ".join(f"{name}: {about}" for name, about in METHODS.items())
                             + f" (default: {UNSET.method})")
    parser.add_argument("--data", type=Path, required=True, metavar="FILE.jsonl",
                        help="a JSON object in each line with prompt or messages; of the kind that will be served")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR",
                        help="folder of the drafter, with answers, checkpoint and report.json")
    _add_answers(parser)
    _add_training(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_flags(parser)


def _add_answers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-tokens", type=int, default=UNSET.max_tokens, metavar="N",
                        help=f"maximum tokens of an answer (default: {UNSET.max_tokens})")
    parser.add_argument("--temperature", type=float, metavar="T",
                        help="temperature of the answers (default: the model's)")
    parser.add_argument("--seed", type=int, default=UNSET.seed, metavar="S",
                        help=f"of answers and training (default: {UNSET.seed})")


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", metavar="LIST",
                        help="layers of MODEL that a student begins as (default: first, middle and last)")
    parser.add_argument("--steps", type=int, metavar="N",
                        help=f"steps of training (default: {UNSET.steps}, without --minutes)")
    parser.add_argument("--minutes", type=float, metavar="X", help="maximum minutes of training; answers come first")
    parser.add_argument("--batch", type=int, default=UNSET.batch, metavar="N",
                        help=f"answers in a step (default: {UNSET.batch})")
    parser.add_argument("--lr", type=float, default=UNSET.rate, metavar="X",
                        help=f"highest learning rate (default: {UNSET.rate:g})")
    parser.add_argument("--negatives", type=int, default=UNSET.negatives, metavar="N",
                        help="ids in a step that stand for all that are unlikely "
                             f"(default: {UNSET.negatives})")
    parser.add_argument("--dtype", choices=DTYPES, default=UNSET.dtype,
                        help="of the products in training; bf16 is faster on CPUs that have its instructions "
                             f"(default: {UNSET.dtype})")
    parser.add_argument("--drafts", type=int, default=UNSET.drafts, metavar="N",
                        help=f"drafts of a sequence in a step of the evaluation (default: {UNSET.drafts})")


def _layers(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text is not None else ()
    except ValueError:
        raise RequestError(f"--layers must be numbers with commas, not {text!r}") from None


def run(args: argparse.Namespace) -> int:
    steps = UNSET.steps if args.steps is None and args.minutes is None else args.steps
    settings = TrainSettings(method=args.method, layers=_layers(args.layers), max_tokens=args.max_tokens,
                             temperature=args.temperature, seed=args.seed, steps=steps, minutes=args.minutes,
                             batch=args.batch, rate=args.lr, negatives=args.negatives, dtype=args.dtype,
                             drafts=args.drafts)
    config = engine_config(args)
    check_torch()
    from drut.train.run import train_drafter

    try:
        result = train_drafter(args.model, args.data, args.out, settings, config, note)
    except KeyboardInterrupt:
        note("interrupted; the same command continues")
        raise
    print(json.dumps(result) if args.json else text(result))
    return 0


def text(result: dict[str, Any]) -> str:
    """Returns the evaluation, a line for each position, and how to use the drafter."""
    found = result["evaluation"]
    lines = [f"{found['tokens_per_step']:.2f} tokens a step in {found['verifications']} steps over {found['prompts']} "
             "held-out prompts; acceptance, if all drafts before were accepted:"]
    lines += [f"  draft {i}  {share:6.1%}" for i, share in enumerate(found["acceptance"], 1)]
    return "\n".join([*lines, f"use it: --speculate {result['speculate']}"])
