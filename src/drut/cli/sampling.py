"""The flags of sampling parameters: one for a field of SamplingParams, the same in every command."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from drut.engine.request.params import SamplingParams

MODELS = "default: the model's, else"


class SamplingFlag(NamedTuple):
    type: type
    metavar: str
    help: str


FLAGS = {
    "max_tokens": SamplingFlag(int, "N", "maximum tokens of an answer (default: 256; in a chat to the end of the "
                                         "context)"),
    "temperature": SamplingFlag(float, "T", "0 always takes the likeliest token, higher values vary more "
                                            f"({MODELS} 1)"),
    "top_k": SamplingFlag(int, "K", f"sample from the K likeliest tokens ({MODELS} 0, off)"),
    "top_p": SamplingFlag(float, "P", "sample from the fewest likeliest tokens with a total probability of P "
                                      f"({MODELS} 1, off)"),
    "min_p": SamplingFlag(float, "P", "sample from tokens at least P times as likely as the likeliest "
                                      f"({MODELS} 0, off)"),
    "seed": SamplingFlag(int, "S", "the same seed gives the same answer (default: drawn at random)"),
    "min_tokens": SamplingFlag(int, "N", "minimum tokens of an answer (default: 0)"),
    "repetition_penalty": SamplingFlag(float, "R", "above 1 makes tokens of prompt and answer less likely "
                                                   f"({MODELS} 1, off)"),
    "presence_penalty": SamplingFlag(float, "P", "subtracted from the logits of tokens of the answer (default: 0)"),
    "frequency_penalty": SamplingFlag(float, "F", "subtracted from the logits of tokens of the answer, times their "
                                                  "count (default: 0)"),
    "stop": SamplingFlag(str, "TEXT", "end the answer before TEXT; may be given several times"),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each field. A flag that is not given leaves the field's default."""
    group = parser.add_argument_group("sampling")
    for name, flag in FLAGS.items():
        short = ["-n"] if name == "max_tokens" else []
        group.add_argument(*short, "--" + name.replace("_", "-"), type=flag.type, metavar=flag.metavar, help=flag.help,
                           action="append" if name == "stop" else "store")


def from_flags(args: argparse.Namespace) -> SamplingParams:
    """Returns the values of a parser with `add_flags`. Raises RequestError, with the field, for invalid values."""
    given = {name: getattr(args, name) for name in FLAGS}
    return SamplingParams(**{name: value for name, value in given.items() if value is not None})
