"""`drut pull`: fetches a model, or verifies a present one, and prints its path."""

from __future__ import annotations

import argparse

from drut.cli.opening import add_model
from drut.model.store import pull

HELP = """Fetch a model and print its path; a model that is present is verified again. MODEL is a short name
(drut list --catalogue), hf:ORG/REPO[@REVISION][:FILE.gguf], a .gguf file, or a directory with config.json and
safetensors."""
EXAMPLES = (
    ("drut pull smollm2-135m-instruct", "a model by short name"),
    ("drut pull hf:Qwen/Qwen3-4B-GGUF:Qwen3-4B-Q4_K_M.gguf", "one file of the Hugging Face hub"),
    ("drut pull hf:HuggingFaceTB/SmolLM2-135M-Instruct", "a whole repository"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model argument."""
    add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Fetches the model, then prints only the path on standard output; progress is on standard error."""
    print(pull(args.model))
    return 0
