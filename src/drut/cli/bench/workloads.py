"""`drut bench workloads`: lists workloads."""

from __future__ import annotations

import argparse

SUMMARY = "list the workloads and their options"
DESCRIPTION = "Lists the workloads and their options, for --workload."
EXAMPLES = (
    ("drut bench workloads", "all of them with their options"),
    ("drut bench workloads | grep -A 3 synthetic", "the options of one"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments."""


def run(args: argparse.Namespace) -> int:
    """Prints the list."""
    from drut.bench.workloads import help_text

    print(help_text())
    return 0
