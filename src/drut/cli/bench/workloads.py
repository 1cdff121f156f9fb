"""`drut bench workloads`: what may be sent."""

from __future__ import annotations

import argparse

SUMMARY = "name the workloads and their options"
DESCRIPTION = "Names the workloads and their options, as --workload takes them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(args: argparse.Namespace) -> int:
    """Prints them."""
    from drut.bench.workloads import help_text

    print(help_text())
    return 0
