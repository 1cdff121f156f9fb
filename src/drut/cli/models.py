"""`drut models`: lists architectures."""

from __future__ import annotations

import argparse
import json

from drut.model.families import FAMILIES, refused

HELP = "List the architectures that run, and known ones that do not. `drut show MODEL` describes one model."
EXAMPLES = (
    ("drut models", "what runs, and what is refused"),
    ("drut models --json", "the same as JSON"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the output format."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints the families, then the refused architectures with reasons."""
    if args.json:
        families = [{"family": f.NAME, "examples": f.EXAMPLES, "hf": f.HF_ARCHITECTURES, "gguf": f.GGUF_ARCHITECTURES}
                    for f in FAMILIES]
        print(json.dumps({"families": families, "refused": {**refused.HF, **refused.GGUF}}))
        return 0
    for family in FAMILIES:
        print(f"{family.NAME:<12} {family.EXAMPLES}")
        names = (*family.HF_ARCHITECTURES, *(f"{name} (GGUF)" for name in family.GGUF_ARCHITECTURES))
        print(f"{'':<12}   {', '.join(names)}")
    print("\nknown and refused")
    for why, those in refused.by_reason().items():
        print(f"{'':<12} {why}: {', '.join(those)}")
    return 0
