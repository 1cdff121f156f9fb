"""The table of operations: compiles each of them to the struct that the native library runs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from drut.errors import UnsupportedError
from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.native.compile import attention, ends, experts, matrices
from drut.kernels.native.compile.row import OpCompiler
from drut.kernels.native.workspace import Workspace

ROWS: Mapping[type[ops.Op], OpCompiler] = {**ends.ROWS, **attention.ROWS, **matrices.ROWS, **experts.ROWS}
STRUCTS = (*abi.SHARED, *dict.fromkeys(row.struct for row in ROWS.values()))


def codes(library: ctypes.CDLL) -> dict[str, int]:
    """Returns the codes of the library's operations by name."""
    found: dict[str, int] = {}
    while (name := library.drut_op_name(len(found))) is not None:
        found[name.decode()] = len(found)
    return found


def compiled(op: ops.Op, workspace: Workspace, codes: Mapping[str, int]) -> abi.Struct:
    """Returns the struct of `op`, with pointers into `workspace` and to weights. Raises UnsupportedError if the library
    lacks the operation."""
    row = ROWS.get(type(op))
    if row is None or row.name not in codes:
        raise UnsupportedError(f"the native kernels have no operation {type(op).__name__}")
    head = abi.OpArgs(code=codes[row.name], layer=getattr(op, "layer", 0))
    return row.struct(op=head, **row.fill(op, workspace))
