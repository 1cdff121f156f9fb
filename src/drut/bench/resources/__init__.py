"""The resources that a run uses on this machine: CPUs, memory, GPUs, energy."""

from drut.bench.resources.gpus import GpuUse
from drut.bench.resources.machine import MachineUse
from drut.bench.resources.processes import ProcessUse
from drut.bench.resources.rapl import Energy
from drut.bench.resources.watch import Resources, ResourceWatch

__all__ = ["Energy", "GpuUse", "MachineUse", "ProcessUse", "ResourceWatch", "Resources"]
