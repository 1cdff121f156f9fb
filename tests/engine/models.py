"""Tiny models for tests of the engine, and what an answer is without its timings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from drut import Completion
from tests.cli import tiny
from tests.golden.as_gguf import metadata, stored
from tests.model.gguf_writer import Tensor, gguf


def write_bytes_model(directory: Path) -> Path:
    """A model whose tokens are bytes, with a chat template, in a GGUF file."""
    path = directory / "bytes.gguf"
    path.write_bytes(tiny.model())
    return path


def write_poisoned_model(directory: Path, token: int) -> Path:
    """The same model, with an embedding of `token` that is not a number."""
    embedding, *rest = tiny.tensors()
    table = np.frombuffer(embedding.data, "<f4").reshape(tiny.VOCAB, tiny.HIDDEN).copy()
    table[token] = np.nan
    head = replace(embedding, name="output.weight")
    path = directory / "poisoned.gguf"
    path.write_bytes(gguf(tiny.metadata(), [replace(embedding, data=table.tobytes()), *rest, head]))
    return path


Said = tuple[object, ...]


def said(answer: Completion, *, scores: bool = True) -> Said:
    """What must be the same from every run: all but the seed of greedy answers, timings and what the cache held."""
    kept: Said = (answer.text, answer.token_ids, answer.finish_reason, answer.index, answer.prompt_tokens)
    return (*kept, answer.logprobs, answer.prompt_logprobs) if scores else kept


def write_gguf(name: str, path: Path, matrices: str, embedding: str) -> Path:
    """The tiny checkpoint `name` as a GGUF file with its matrices and its embedding in these formats."""
    items = []
    for tensor, values in stored(name):
        kind = GGMLQuantizationType[embedding if tensor == "token_embd.weight" else matrices]
        if values.ndim == 1:
            kind = GGMLQuantizationType.F32
        items.append(Tensor(tensor, values.shape[::-1], int(kind), quantize(values, kind).tobytes()))
    path.write_bytes(gguf(metadata(name), items))
    return path
