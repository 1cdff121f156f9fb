"""The weights of a source decoded to float32: the reference for measuring its quantization."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from drut.formats.decode import decode
from drut.formats.encoding import encoding, find_encoding
from drut.formats.planes import U8
from drut.model.weights.source import TensorInfo, TensorSource


class DecodedSource:
    """A source whose decodable tensors are F32, with their columns in order; other tensors are unchanged."""

    def __init__(self, base: TensorSource) -> None:
        self._base = base
        self._tensors = MappingProxyType({name: _widened(info) for name, info in base.tensors.items()})

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def raw(self, name: str) -> U8:
        """Returns the tensor's bytes, decoded again in each call."""
        info = self._base.tensors.get(name)
        if info is None or info.encoding == "F32" or find_encoding(info.encoding) is None:
            return self._base.raw(name)
        values = decode(encoding(info.encoding), self._base.raw(name), info.shape[-1])
        columns = self._base.columns(name)
        if columns is not None:
            values[:, columns] = values.copy()
        return values.view(np.uint8).reshape(-1)

    def columns(self, name: str) -> NDArray[np.int32] | None:
        return None

    def release(self, name: str) -> None:
        self._base.release(name)

    def close(self) -> None:
        self._base.close()


def _widened(info: TensorInfo) -> TensorInfo:
    if find_encoding(info.encoding) is None:
        return info
    return TensorInfo(info.name, info.shape, "F32", info.offset, 4 * int(np.prod(info.shape, dtype=np.int64)))
