"""What is asked of a server: named workloads, each a list of sessions that a seed fixes."""

from drut.bench.workloads.registry import WORKLOADS, help_text, load
from drut.bench.workloads.workload import Sessions, Workload

__all__ = ["WORKLOADS", "Sessions", "Workload", "help_text", "load"]
