"""The table of operations: the NumPy function that runs each of them."""

from __future__ import annotations

from collections.abc import Mapping

from drut.kernels.numpy.operations import attention, ends, experts, matrices
from drut.kernels.numpy.state import Run
from drut.kernels.ops import Op

Table = Mapping[type[Op], Run]

OPERATIONS: Table = {**ends.OPERATIONS, **attention.OPERATIONS, **matrices.OPERATIONS, **experts.OPERATIONS}
