"""The flags of sampling parameters: one for a field of SamplingParams, the same in every command."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from drut.engine.request.params import SamplingParams


class SamplingFlag(NamedTuple):
    type: type
    metavar: str
    help: str


FLAGS = {
    "max_tokens": SamplingFlag(int, "N", "maximum tokens of an answer"),
    "temperature": SamplingFlag(float, "T", "0 always takes the likeliest token, higher values vary more"),
    "top_k": SamplingFlag(int, "K", "sample from the K likeliest tokens; 0 for all"),
    "top_p": SamplingFlag(float, "P", "sample from the fewest likeliest tokens with a total probability of P"),
    "min_p": SamplingFlag(float, "P", "sample from tokens at least P times as likely as the likeliest"),
    "seed": SamplingFlag(int, "S", "the same seed gives the same answer"),
    "min_tokens": SamplingFlag(int, "N", "minimum tokens of an answer"),
    "repetition_penalty": SamplingFlag(float, "R", "above 1 makes tokens of prompt and answer less likely; 1 for none"),
    "presence_penalty": SamplingFlag(float, "P", "subtracted from the logits of tokens of the answer"),
    "frequency_penalty": SamplingFlag(float, "F",
                                      "subtracted from the logits of tokens of the answer, times their count"),
    "stop": SamplingFlag(str, "TEXT", "end the answer before TEXT; may be given several times"),
}


def add_flags(parser: argparse.ArgumentParser, defaults: SamplingParams) -> None:
    """Adds a flag for each field, with its default from `defaults` in the help."""
    group = parser.add_argument_group("sampling")
    for name, flag in FLAGS.items():
        default = getattr(defaults, name)
        option = "--" + name.replace("_", "-")
        if name == "stop":
            group.add_argument(option, action="append", default=[], metavar=flag.metavar, help=flag.help)
        else:
            shown = "drawn at random" if default is None else default
            short = ["-n"] if name == "max_tokens" else []
            group.add_argument(*short, option, type=flag.type, default=default, metavar=flag.metavar,
                               help=f"{flag.help} (default: {shown})")


def from_flags(args: argparse.Namespace) -> SamplingParams:
    """Returns the values of a parser with `add_flags`. Raises RequestError, with the field, for invalid values."""
    return SamplingParams(**{name: getattr(args, name) for name in FLAGS})
