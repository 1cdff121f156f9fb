"""`drut convert`: converts a model to another file format."""

from __future__ import annotations

import argparse
from pathlib import Path

from drut.cli.opening import add_model
from drut.cli.terminal import note
from drut.formats.encode import ENCODERS
from drut.formats.encoding import W8A8, title
from drut.model.convert import convert
from drut.model.model import open_model
from drut.model.store import resolve

HELP = """Write a model as a GGUF file, or as a Hugging Face directory: weights, tokenizer and chat template. Matrices
keep their encoding, or each element is rounded to the nearest value of another one; for W8A8 the matrices are smoothed
before, with a text that ships with Drut."""
EXAMPLES = (
    ("drut convert smollm2-135m-instruct q8.gguf --encoding Q8_0", "to a GGUF file"),
    ("drut convert ./model.gguf ./model --encoding BF16", "to a Hugging Face directory"),
    ("drut convert smollm2-135m-instruct ./w8a8 --encoding W8A8", "to one in the compressed-tensors format"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("out", metavar="OUT", type=Path, help="the output: FILE.gguf, or a directory")
    parser.add_argument("--encoding", choices=[title(name) for name in ENCODERS],
                        help="encoding of all matrices (default: as stored; a directory takes floats and W8A8, a GGUF "
                             "file all but W8A8)")


def run(args: argparse.Namespace) -> int:
    from drut.quality.calibration import calibration_sample

    files = open_model(resolve(args.model))
    try:
        tokenizer = files.tokenizer() if args.encoding == title(W8A8.name) else None
        sample = calibration_sample(tokenizer) if tokenizer is not None else []
        for line in convert(files, args.out, args.encoding, sample):
            note(line)
    finally:
        files.close()
    print(args.out)
    return 0
