"""The memory in which the native router writes its routes, and its counters."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from drut.kernels.native import abi
from drut.kernels.ops import Routes

MAX_LAYERS = 4096


class NativeRoutes:
    """Holds routes for steps of at most `rows` rows, and counters by layer."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._room: dict[Routes, tuple[abi.RoutesArgs, dict[str, NDArray[np.int32]]]] = {}
        self._loads: dict[int, NDArray[np.int64]] = {}
        self._used = np.zeros(MAX_LAYERS, np.int32)

    def address(self, routes: Routes) -> int:
        return ctypes.addressof(self._of(routes)[0])

    def shared(self, routes: Routes) -> int:
        """Returns the address of the weights of the shared expert, one per row."""
        return self._of(routes)[1]["shared"].ctypes.data

    def _of(self, routes: Routes) -> tuple[abi.RoutesArgs, dict[str, NDArray[np.int32]]]:
        if routes not in self._room:
            pairs = self._rows * routes.top_k
            sizes = {"expert": pairs, "weight": pairs, "shared": self._rows, "first": routes.experts + 1,
                     "used": routes.experts, "row": pairs, "pair_index": pairs}
            room = {name: np.zeros(size, np.int32) for name, size in sizes.items()}
            struct = abi.RoutesArgs(**{name: array.ctypes.data for name, array in room.items()}, used_count=0,
                                    experts=routes.experts, top_k=routes.top_k)
            self._room[routes] = struct, room
        return self._room[routes]

    def counters(self, layer: int, experts: int) -> tuple[int, int]:
        """Returns the addresses of a layer's counters: rows by expert, and experts used in a step."""
        self._loads[layer] = np.zeros(experts, np.int64)
        return self._loads[layer].ctypes.data, self._used.ctypes.data + 4 * layer

    def loads(self) -> dict[int, NDArray[np.int64]]:
        """Returns by layer the number of rows of each expert since the start."""
        return {layer: counts.copy() for layer, counts in self._loads.items()}

    def used(self) -> tuple[int, ...]:
        """Returns by layer, up to the last with experts, the number of experts with rows in the last step."""
        return tuple(self._used[: max(self._loads, default=-1) + 1].tolist())
