"""The work for a server: named workloads, each a list of sessions determined by a seed."""

from drut.bench.workloads.registry import WORKLOADS, help_text, load
from drut.bench.workloads.workload import Sessions, Workload

__all__ = ["WORKLOADS", "Sessions", "Workload", "help_text", "load"]
