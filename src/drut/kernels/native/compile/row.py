"""One row of the table of operations: its name in the library, its struct, and what the struct is filled with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from drut.kernels.native import abi
from drut.kernels.native.room import Room

Fill = Callable[[Any, Room], dict[str, Any]]


class Row(NamedTuple):
    name: str  # in csrc/run/ops.h
    struct: type[abi.Struct]
    fill: Fill  # all fields but `op`
