"""Digests of what the native kernels compute, to compare machines: `python -m tests.kernels.digests ISA`.

Inputs come from integers and powers of two, which every platform makes alike.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from drut.kernels.native.backend import NativeBackend
from tests.kernels.rig import F32, FLOATS, Stored, floats, gate_up, projection
from tests.kernels.test_attention import TOKENS, Attending, Shape, ragged_decode, sequences
from tests.kernels.test_elementwise import FREQUENCIES, SIGNS, normed, turned
from tests.kernels.test_encodings import FP8, QUANTS, random_file
from tests.kernels.test_sampling_whole import Given, random_ask

COUNTS = (*range(1, 18), 66)  # of rows in a step


def spread(rng: np.random.Generator, shape: tuple[int, ...], least: int = 0, most: int = 1) -> F32:
    """Of either sign, times 2^least..2^(most - 1)."""
    exponents = rng.integers(least, most, shape) - 20
    return np.ldexp(rng.integers(-(1 << 20), 1 << 20, shape).astype(np.float64), exponents).astype(np.float32)


def product(backend: NativeBackend, weight: Stored, wild: bool) -> list[F32]:
    """For each count of rows; wild rows are zero, subnormal, about the smallest normal, huge, or hold NaN, infinity."""
    rng = np.random.default_rng(weight.k)
    source = spread(rng, (COUNTS[-1], weight.k))
    if wild:
        source[1] = 0
        source[2], source[3] = (spread(rng, (weight.k,), *e) for e in ((-145, -126), (-128, -110)))
        source[4] = spread(rng, (weight.k,), 100, 127)
        source[5, 3], source[6, 40] = np.nan, np.inf
    ran, x = projection(backend, weight, source, np.zeros((COUNTS[-1], weight.n), np.float32))
    results = []
    for rows in COUNTS:
        ran.run(range(rows))
        results.append(ran.read(x))
    return results


def float_matrix(name: str) -> Stored:
    return floats(spread(np.random.default_rng(1), (70, 98), -30, 3), name)


def prompts(backend: NativeBackend, shape: Shape) -> list[F32]:
    """Steps of many rows over chunk boundaries, alone and together with another sequence."""
    rng = np.random.default_rng(7)
    long, short = sequences(rng, (TOKENS, 40))
    run = Attending(backend, shape, pages=len(long.pages) + len(short.pages))
    steps = [(long, 0, 200)], [(long, 200, 270), (short, 0, 40)], [(long, 270, TOKENS)]
    return [run.attend(parts) for parts in steps]


def elementwise(backend: NativeBackend) -> list[F32]:
    rng = np.random.default_rng(3)
    x, weight = spread(rng, (9, 96), -40, 20), spread(rng, (96,))
    grid = np.concatenate([spread(rng, (128,), -126, 8), np.arange(64, 96, 0.25, np.float32)])
    signs, ones = np.stack([np.ones(grid.size), -np.ones(grid.size)]).astype(np.float32), np.ones(grid.size, np.float32)
    head = spread(rng, (32,))
    return [normed(backend, x, weight, 1e-5), *turned(backend, SIGNS, FREQUENCIES, 131_068, 0.75, (head, head)),
            gate_up(backend, floats(np.diag(grid)), floats(np.diag(ones)), signs)]


def samples(backend: NativeBackend, vocab: int) -> list[Any]:
    """Tokens drawn in all ways, logprobs, ranks and the likeliest ids."""
    rng = np.random.default_rng(vocab)
    logits = spread(rng, (8, vocab), -3, 5)
    logits[::2] = np.round(logits[::2])
    return list(Given(backend, logits, 80).run([random_ask(rng, vocab) for _ in range(80)]))


def cases() -> dict[str, Callable[[NativeBackend], list[Any]]]:
    found: dict[str, Callable[[NativeBackend], list[Any]]] = {"elementwise": elementwise}
    for wild in (False, True):
        for name in (*QUANTS, *FP8):
            found[f"{name}{' wild' * wild}"] = lambda b, n=name, w=wild: product(b, random_file(n, 33, 512), w)
        for name in FLOATS:
            found[f"{name}{' wild' * wild}"] = lambda b, n=name, w=wild: product(b, float_matrix(n), w)
    for shape in (Shape(16, 9, "bf16"), Shape(64, 3, "bf16"), Shape(80, 4, "fp32"), Shape(128, 5, "bf16"),
                  Shape(64, 3, "int8"), Shape(80, 4, "int8")):
        found[f"decode {shape}"] = lambda b, s=shape: [ragged_decode(b, s)]
    for shape in (Shape(48, 2, "bf16"), Shape(32, 8, "fp32"), Shape(16, 9, "int8")):
        found[f"prompt {shape}"] = lambda b, s=shape: prompts(b, s)
    for vocab in (17, 1025, 3000):
        found[f"samples {vocab}"] = lambda b, v=vocab: samples(b, v)
    return found


def digest(results: list[Any]) -> str:
    """One NaN is as good as another."""
    sha = hashlib.sha256()
    for result in results:
        array = np.array(result)
        if array.dtype.kind == "f":
            array[np.isnan(array)] = np.nan
        sha.update(array.tobytes())
    return sha.hexdigest()


def digests(backend: NativeBackend) -> dict[str, str]:
    return {name: digest(run(backend)) for name, run in cases().items()}


if __name__ == "__main__":
    json.dump(digests(NativeBackend(2, sys.argv[1])), sys.stdout)
