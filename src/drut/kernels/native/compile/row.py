"""One row of the table of operations: name in the library, struct, and the function that computes its fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from drut.kernels.native import abi
from drut.kernels.native.workspace import Workspace

Fill = Callable[[Any, Workspace], dict[str, Any]]


class OpCompiler(NamedTuple):
    name: str  # in csrc/run/ops.h
    struct: type[abi.Struct]
    fill: Fill  # returns all fields but `op`
