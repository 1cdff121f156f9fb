"""What a weight file offers, whatever its container: named tensors as raw bytes, mapped read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TensorInfo:
    """One stored tensor. `shape` is outermost first (rows, k); `encoding` is a name of `drut.formats.encoding`."""

    name: str
    shape: tuple[int, ...]
    encoding: str
    offset: int  # absolute byte offset in its file
    nbytes: int


class TensorSource(Protocol):
    """An open weight file or a set of shards."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes, a read-only 1-D view of the mapping. ModelFileError if there is no such tensor."""
        ...

    def columns(self, name: str) -> NDArray[np.int32] | None:
        """Which input each column of the tensor multiplies; None where they lie in order."""
        ...

    def release(self, name: str) -> None:
        """Tell the kernel the tensor's pages will not be read again soon, so that they stop counting as resident."""
        ...

    def close(self) -> None: ...
