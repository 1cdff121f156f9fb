"""Memory that lives for one step, which executables whose steps run in turns share."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from drut.kernels.native.memory import reserve


class Workspace:
    """Memory by key. What has a key has one layout but for the number of rows, so that padding stays zero."""

    def __init__(self) -> None:
        self._held: dict[Hashable, NDArray[np.uint8]] = {}

    def take(self, key: Hashable, nbytes: int) -> NDArray[np.uint8]:
        """What is held for `key` if that is large enough; otherwise new memory, which later calls get."""
        held = self._held.get(key)
        if held is None or held.nbytes < nbytes:
            held = self._held[key] = reserve(nbytes)
        return held[:nbytes]
