"""Opens a model for a command, and reports its backend."""

from __future__ import annotations

import argparse
import warnings

from drut.cli.terminal import note
from drut.config import EngineConfig
from drut.engine.llm import LLM
from drut.engine.request.output import Completion


def add_model(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Adds the argument MODEL."""
    parser.add_argument("model", metavar="MODEL", nargs="?" if optional else None,
                        help="a short name (drut list --catalogue), hf:ORG/REPO or a path")


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Adds the argument MODEL and the flag --model; settings.model_of returns the choice."""
    add_model(parser, optional=True)
    parser.add_argument("-m", "--model", dest="model_flag", metavar="MODEL",
                        help="the same as a flag (default: DRUT_MODEL, or `model` in the settings' file)")


def open_llm(model: str, config: EngineConfig, *, announce: bool = True) -> LLM:
    """Loads `model`. Warnings are notes of a line each, as are backend and numerics id with `announce`."""
    with warnings.catch_warnings(record=True) as caught:
        llm = LLM(model, config=config)
    for warning in caught:
        note(str(warning.message))
    if announce:
        note(f"{llm.files.path.name}: {llm.backend.describe()}, numerics {llm.numerics_id}")
    return llm


def speed(answer: Completion) -> str:
    """Returns number of tokens, time to the first token, and the rate of the others."""
    text = f"{answer.completion_tokens} token{'s' * (answer.completion_tokens != 1)}"
    if "ttft_s" in answer.timings:
        text += f", the first after {answer.timings['ttft_s']:.2f} s"
    if answer.timings.get("decode_tokens_per_s"):
        text += f", then {answer.timings['decode_tokens_per_s']:.1f} tokens/s"
    return text
