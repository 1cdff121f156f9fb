"""Buffers are known by name and width: layers may have widths of their own."""

from __future__ import annotations

import numpy as np
import pytest

from drut.kernels.backend import Backend
from drut.kernels.ops import Buffer, Embed, Project
from tests.kernels.rig import Ran, filler_head, floats, oracle, recorded


@pytest.fixture(params=["numpy", "native"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.getfixturevalue("native")() if request.param == "native" else oracle()


def test_a_name_in_two_widths_is_two_buffers(backend: Backend) -> None:
    """The narrow one is read after the wide one was written."""
    values = np.arange(32, dtype=np.float32).reshape(1, 32)
    x, narrow, wide, result = Buffer("x", 32), Buffer("q", 32), Buffer("q", 70), Buffer("result", 32)
    unit, repeated = floats(np.eye(32)).on(backend), floats(np.eye(70, 32)).on(backend)
    ran = Ran(backend, recorded(
        Embed(floats(values).on(backend), x), Project(0, x, unit, narrow, add=False),
        Project(1, x, repeated, wide, add=False), Project(1, narrow, unit, result, add=False),
        filler_head(backend, x)), rows=1)
    ran.run([0])
    assert ran.read(result).tolist() == ran.read(narrow).tolist() == values.tolist()
    assert ran.read(wide).tolist() == np.pad(values, ((0, 0), (0, 38))).tolist()
