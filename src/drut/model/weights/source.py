"""The interface of weight files of any container: named tensors as raw bytes, mapped read-only."""

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
        """Returns the tensor's bytes, a read-only 1-D view of the mapping. Raises ModelFileError if it is missing."""
        ...

    def columns(self, name: str) -> NDArray[np.int32] | None:
        """Returns for each column of the tensor the index of its input; None if they are in order."""
        ...

    def release(self, name: str) -> None:
        """Advises the system that the tensor's pages will not be read again soon, so that they no longer count as
        resident."""
        ...

    def close(self) -> None: ...
