"""The flags that say how an answer is drawn: one for a field of SamplingParams, the same in every command."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from drut.engine.params import SamplingParams


class _Flag(NamedTuple):
    type: type
    metavar: str
    help: str


_FLAGS = {
    "max_tokens": _Flag(int, "N", "most tokens of an answer"),
    "temperature": _Flag(float, "T", "0 always takes the likeliest token, higher values vary more"),
    "top_k": _Flag(int, "K", "draw from the K likeliest tokens; 0 for all"),
    "top_p": _Flag(float, "P", "draw from the fewest likeliest tokens that have probability P together"),
    "min_p": _Flag(float, "P", "draw from tokens at least P times as likely as the likeliest"),
    "seed": _Flag(int, "S", "the same seed draws the same answer"),
    "min_tokens": _Flag(int, "N", "tokens before which the answer does not end"),
    "repetition_penalty": _Flag(float, "R", "above 1 makes what was said or asked less likely; 1 for none"),
    "presence_penalty": _Flag(float, "P", "taken from the logits of what was said"),
    "frequency_penalty": _Flag(float, "F", "the same, times how often it was said"),
    "stop": _Flag(str, "TEXT", "end the answer before TEXT; may be given several times"),
}


def add_flags(parser: argparse.ArgumentParser, defaults: SamplingParams) -> None:
    """One flag a field, its default from `defaults` and shown in the help."""
    group = parser.add_argument_group("sampling")
    for name, flag in _FLAGS.items():
        default = getattr(defaults, name)
        option = "--" + name.replace("_", "-")
        if name == "stop":
            group.add_argument(option, action="append", default=[], metavar=flag.metavar, help=flag.help)
        else:
            shown = "drawn at random" if default is None else default
            group.add_argument(option, type=flag.type, default=default, metavar=flag.metavar,
                               help=f"{flag.help} (default: {shown})")


def from_flags(args: argparse.Namespace) -> SamplingParams:
    """The values of a parser with `add_flags`. RequestError names the field that is out of range."""
    return SamplingParams(**{name: getattr(args, name) for name in _FLAGS})
