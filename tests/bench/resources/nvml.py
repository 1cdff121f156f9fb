"""A stand-in for the module pynvml: two GPUs, of which the second is old."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


class FakeNvml:
    """Use, watts and joules go up with every reading."""

    NVMLError = NVMLError

    def __init__(self, count: int = 2) -> None:
        self.count, self.open = count, False
        self.readings = [0, 0]

    def nvmlInit(self) -> None:  # noqa: N802
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes | str:  # noqa: N802
        return b"Fake 1" if handle else "Fake 0"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        self.readings[handle] += 1
        if handle and self.readings[handle] == 2:
            raise NVMLError("busy")
        return SimpleNamespace(gpu=20 * self.readings[handle])

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=1000, used=100 * self.readings[handle])

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        if handle:
            raise NVMLError("not supported")
        return 100_000 * self.readings[handle]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
        if handle:
            raise NVMLError("not supported")
        return 5_000 + 1_000 * self.readings[handle]
