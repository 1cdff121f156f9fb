"""Safetensors files of any dtype, and quantized layers written element by element, as their formats define them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from drut.formats.decode import decode
from drut.formats.encoding import encoding
from drut.model.weights.quantized import open_quantized
from drut.model.weights.safetensors import SafetensorsFile
from drut.model.weights.source import TensorSource

PLAIN = {"int32": "I32", "int64": "I64", "int8": "I8", "uint8": "U8", "float16": "F16", "float32": "F32"}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


class As(NamedTuple):
    """Bits of a dtype that NumPy does not have."""

    dtype: str
    bits: np.ndarray


Tensors = dict[str, "np.ndarray | As"]


def write(path: Path, tensors: Mapping[str, np.ndarray | As]) -> Path:
    header, data = {}, b""
    for name, value in tensors.items():
        held = value if isinstance(value, As) else As(PLAIN[value.dtype.name], value)
        raw = np.ascontiguousarray(held.bits).tobytes()
        span = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": held.dtype, "shape": held.bits.shape, "data_offsets": span}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def opened(folder: Path, tensors: Mapping[str, np.ndarray | As], config: Mapping[str, Any]) -> TensorSource:
    """The tensors, as a model of this quantization_config shows them."""
    source = SafetensorsFile(write(folder / "model.safetensors", tensors))
    return open_quantized(source, {"quantization_config": config}, folder)


def values(source: TensorSource, name: str) -> np.ndarray:
    """The numbers of a weight, its columns where the activations have them."""
    info = source.tensors[name]
    decoded = decode(encoding(info.encoding), source.raw(name), info.shape[-1]).reshape(info.shape)
    columns = source.columns(name)
    if columns is None:
        return decoded
    out = np.empty_like(decoded)
    out[..., columns] = decoded
    return out


class Layer(NamedTuple):
    tensors: Tensors
    decoded: np.ndarray  # (n, k)


def gptq(rng: np.random.Generator, n: int, k: int, group: int, *, bits: int = 4, version: int = 1,
         reorder: bool = False, symmetric: bool = False, name: str = "x") -> Layer:
    """A layer by the definition: w[n, k] = (code - zero) * scale of the column's group."""
    top, per_word = 1 << bits, 32 // bits
    groups = k // group
    codes, zeros = rng.integers(0, top, (k, n)), rng.integers(1, top, (groups, n))
    if symmetric:
        zeros[:] = top // 2
    scales = rng.uniform(0.01, 0.02, (groups, n)).astype(np.float16)
    index = np.arange(k) // group
    if reorder:
        index = rng.permutation(index)
    stored = zeros - 1 if version == 1 else zeros
    qweight, qzeros = np.zeros((k // per_word, n), np.uint32), np.zeros((groups, -(-n // per_word)), np.uint32)
    for i in range(k):
        qweight[i // per_word] |= codes[i].astype(np.uint32) << np.uint32(bits * (i % per_word))
    for j in range(n):
        qzeros[:, j // per_word] |= stored[:, j].astype(np.uint32) << np.uint32(bits * (j % per_word))
    decoded = np.stack([(codes[i] - zeros[index[i]]).astype(np.float32) * scales[index[i]].astype(np.float32)
                        for i in range(k)], axis=1)
    return Layer({f"{name}.qweight": qweight.view(np.int32), f"{name}.qzeros": qzeros.view(np.int32),
                  f"{name}.scales": scales, f"{name}.g_idx": index.astype(np.int32)}, decoded)


def awq(rng: np.random.Generator, n: int, k: int, group: int, name: str = "x") -> Layer:
    """As `gptq`, packed along n in AWQ's order."""
    codes, zeros = rng.integers(0, 16, (k, n)), rng.integers(0, 16, (k // group, n))
    scales = rng.uniform(0.01, 0.02, (k // group, n)).astype(np.float16)

    def packed(x: np.ndarray) -> np.ndarray:
        out = np.zeros((len(x), n // 8), np.uint32)
        for i in range(8):
            out |= x[:, AWQ_ORDER[i] :: 8].astype(np.uint32) << np.uint32(4 * i)
        return out.view(np.int32)

    decoded = np.stack([(codes[i] - zeros[i // group]).astype(np.float32) * scales[i // group].astype(np.float32)
                        for i in range(k)], axis=1)
    return Layer({f"{name}.qweight": packed(codes), f"{name}.qzeros": packed(zeros), f"{name}.scales": scales}, decoded)
