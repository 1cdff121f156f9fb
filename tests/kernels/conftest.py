from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from drut.kernels.native import library
from drut.kernels.native.backend import NativeBackend
from tests.kernels.rig import usable_isas

Native = Callable[..., NativeBackend]
BUILT = library.load() is not None


@pytest.fixture(scope="session")
def native() -> Iterator[Native]:
    """Native backends by (isa, threads, execution), each made once."""
    if not BUILT:
        pytest.skip("the native kernels are not built")
    made: dict[tuple[str, int, str], NativeBackend] = {}

    def get(isa: str = "auto", threads: int = 2, execution: str = "replay") -> NativeBackend:
        key = isa, threads, execution
        if key not in made:
            made[key] = NativeBackend(threads, isa, execution)
        return made[key]

    yield get
    for backend in made.values():
        backend.close()


@pytest.fixture(scope="session", params=usable_isas() or ["none"])
def isa(request: pytest.FixtureRequest, native: Native) -> str:
    """Each instruction set in turn."""
    return request.param
