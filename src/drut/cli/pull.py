"""`drut pull`: fetch a model, or check one that is there, and print where it lies."""

from __future__ import annotations

import argparse

from drut.model.store import pull
from drut.model.store.known import KNOWN

HELP = f"""Fetch a model and print where it lies. MODEL is a known name ({", ".join(KNOWN)}),
hf:ORG/REPO[@REVISION][:FILE.gguf], a .gguf file, or a directory with config.json and safetensors."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The one argument: which model."""
    parser.add_argument("model", metavar="MODEL", help="a known name, hf:ORG/REPO or a path")


def run(args: argparse.Namespace) -> int:
    """Fetch, then print the path alone on standard output; progress goes to standard error."""
    print(pull(args.model))
    return 0
