"""Reads the tensors of experts, expert by expert, for every grouping in files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from drut.errors import UnsupportedError
from drut.formats.decode import decode
from drut.formats.encoding import Encoding, encoding
from drut.formats.planes import F32
from drut.model.families.table import StoredExperts
from drut.model.weights.check import tensor_info
from drut.model.weights.source import TensorSource


def check_experts(source: TensorSource, stored: StoredExperts, shape: tuple[int, ...], where: str) -> None:
    """Checks that every tensor is present, in one encoding that can be read without reordering."""
    k = shape[-1] if len(shape) == 3 else 1
    infos = [tensor_info(source, name, stored.stored_shape(shape), k, where) for name in stored.names(shape[0])]
    for info in infos:
        if info.encoding != infos[0].encoding:
            raise UnsupportedError(f"{where}: tensor {info.name!r} is {info.encoding}, but the first expert's is "
                                   f"{infos[0].encoding}; all of a layer must have one encoding")
        if source.columns(info.name) is not None:
            raise UnsupportedError(f"{where}: tensor {info.name!r}: experts with their columns in another order "
                                   "(act-order) are not supported")
        if (stored.transposed or len(shape) == 2) and not encoding(info.encoding).is_float:
            raise UnsupportedError(f"{where}: tensor {info.name!r} is {info.encoding}; it must have a float encoding")


def expert_rows(source: TensorSource, stored: StoredExperts, count: int, n: int,
                enc: Encoding) -> Iterator[NDArray[np.uint8]]:
    """Yields the rows of each expert's matrix in encoding `enc`, (n, row bytes). The file's pages are released after
    each expert."""
    names = stored.names(count)
    raw = np.empty(0, np.uint8)
    for i in range(count):
        name = names[i if stored.each else 0]
        if stored.each or i == 0:  # reading a quantized tensor assembles it again, so it is read once
            raw = source.raw(name)
        one = raw if stored.each else raw[i * (raw.nbytes // count) : (i + 1) * (raw.nbytes // count)]
        if stored.transposed:
            elements = one.view(f"V{enc.block_bytes}").reshape(-1, n * stored.parts)
            rows = np.ascontiguousarray(elements.T[stored.selection(n)]).view(np.uint8).reshape(n, -1)
        else:
            rows = one.reshape(n * stored.parts, -1)[stored.selection(n)]
        yield rows
        source.release(name)


def expert_biases(source: TensorSource, stored: StoredExperts, shape: tuple[int, ...]) -> F32:
    """Returns the biases, (experts, n)."""
    count, n = shape
    parts = []
    for name in stored.names(count):
        enc = encoding(source.tensors[name].encoding)
        parts.append(decode(enc, source.raw(name), n * stored.parts)[:, stored.selection(n)])
    return np.concatenate(parts)
