"""The tensors of experts, expert by expert, however a file groups them."""

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
    """Every tensor is there, all in one encoding that can be read as it lies."""
    k = shape[-1] if len(shape) == 3 else 1
    infos = [tensor_info(source, name, stored.stored_shape(shape), k, where) for name in stored.names(shape[0])]
    for info in infos:
        if info.encoding != infos[0].encoding:
            raise UnsupportedError(f"{where}: tensor {info.name!r} is {info.encoding}, that of the first expert "
                                   f"{infos[0].encoding}; all of a layer must be alike")
        if source.columns(info.name) is not None:
            raise UnsupportedError(f"{where}: tensor {info.name!r}: experts with their columns in another order "
                                   "(act-order) are not supported")
        if (stored.transposed or len(shape) == 2) and not encoding(info.encoding).is_float:
            raise UnsupportedError(f"{where}: tensor {info.name!r} is {info.encoding}; it must be of floats")


def expert_rows(source: TensorSource, stored: StoredExperts, count: int, n: int,
                enc: Encoding) -> Iterator[NDArray[np.uint8]]:
    """The rows of each expert's matrix as `enc` stores them, (n, row bytes). What was read is let go after each."""
    names = stored.names(count)
    raw = np.empty(0, np.uint8)
    for i in range(count):
        name = names[i if stored.each else 0]
        if stored.each or i == 0:  # a quantized tensor is put together anew whenever it is asked for
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
    """(experts, n)."""
    count, n = shape
    parts = []
    for name in stored.names(count):
        enc = encoding(source.tensors[name].encoding)
        parts.append(decode(enc, source.raw(name), n * stored.parts)[:, stored.selection(n)])
    return np.concatenate(parts)
