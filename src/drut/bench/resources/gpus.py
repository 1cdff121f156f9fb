"""Use, memory and power of NVIDIA GPUs through NVML, if its Python binding is installed."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from drut.errors import UnsupportedError


@dataclass(frozen=True)
class GpuUse:
    """The use of one GPU over a run."""

    index: int
    name: str
    use_share: float  # mean share of time with a running kernel, from 0 to 1; not the share of the GPU in use
    memory_bytes: int
    peak_used_bytes: int  # of all processes
    watts: float | None  # mean; None if not reported
    max_watts: float | None
    joules: float | None  # by the GPU's own counter; None if it has none


class Gpu:
    """Samples one GPU."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml, self._index = nvml, index
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(self._handle)
        self._name = name.decode() if isinstance(name, bytes) else str(name)
        self._use: list[float] = []
        self._watts: list[float] = []
        self._used = 0
        self._first = self._joules()

    def sample(self) -> None:
        """Takes a sample."""
        self._use.append(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100)
        self._used = max(self._used, int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used))
        try:
            self._watts.append(self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1e3)
        except self._nvml.NVMLError:
            return

    def use(self) -> GpuUse:
        """Returns the use over all samples."""
        last = self._joules()
        joules = None if self._first is None or last is None else last - self._first
        total = int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).total)
        mean = sum(self._watts) / len(self._watts) if self._watts else None
        return GpuUse(index=self._index, name=self._name, use_share=sum(self._use) / max(len(self._use), 1),
                      memory_bytes=total, peak_used_bytes=self._used, watts=mean,
                      max_watts=max(self._watts, default=None), joules=joules)

    def _joules(self) -> float | None:
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3
        except self._nvml.NVMLError:  # before the Volta generation
            return None


class Gpus:
    """Samples all GPUs that NVML shows."""

    def __init__(self, nvml: Any = None) -> None:
        """Raises UnsupportedError with the reason if there are no readable GPUs."""
        try:
            self._nvml = nvml or importlib.import_module("pynvml")
        except ImportError:
            raise UnsupportedError("GPUs: the Python package nvidia-ml-py is not installed") from None
        try:
            self._nvml.nvmlInit()
            self._gpus = [Gpu(self._nvml, index) for index in range(self._nvml.nvmlDeviceGetCount())]
        except self._nvml.NVMLError as error:
            raise UnsupportedError(f"GPUs: {error}") from None
        if not self._gpus:
            raise UnsupportedError("GPUs: none found")

    def sample(self) -> None:
        """Takes a sample of each GPU. A failed reading is omitted."""
        for gpu in self._gpus:
            try:
                gpu.sample()
            except self._nvml.NVMLError:
                continue

    def use(self) -> list[GpuUse]:
        """Returns the use of each GPU, in the order of their indices."""
        return [gpu.use() for gpu in self._gpus]

    def close(self) -> None:
        """Releases the driver."""
        self._nvml.nvmlShutdown()
