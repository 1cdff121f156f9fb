"""Step memory: it lives for one step and is shared by executables that never run at the same time."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from drut.kernels.native.memory import reserve


class StepMemory:
    """Holds memory by key. All users of a key must have the same layout except for the number of rows: padding that is
    never written stays zero.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, NDArray[np.uint8]] = {}

    def take(self, key: Hashable, nbytes: int) -> NDArray[np.uint8]:
        """Returns the memory of `key` if it is large enough; else zeroed new memory, which later calls get too."""
        held = self._held.get(key)
        if held is None or held.nbytes < nbytes:
            held = self._held[key] = reserve(nbytes)
        return held[:nbytes]
