"""Tiny models for tests of the engine, and what an answer is without its timings."""

from __future__ import annotations

from pathlib import Path

from drut import Completion
from tests.cli import tiny


def write_bytes_model(directory: Path) -> Path:
    """A model whose tokens are bytes, with a chat template, in a GGUF file."""
    path = directory / "bytes.gguf"
    path.write_bytes(tiny.model())
    return path


Said = tuple[object, ...]


def said(answer: Completion, *, scores: bool = True) -> Said:
    """What must be the same from every run: all but the seed of greedy answers, timings and what the cache held."""
    kept: Said = (answer.text, answer.token_ids, answer.finish_reason, answer.index, answer.prompt_tokens)
    return (*kept, answer.logprobs, answer.prompt_logprobs) if scores else kept
