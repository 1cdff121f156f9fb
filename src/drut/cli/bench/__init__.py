"""`drut bench`: measures servers under load, and compares them; with a scripted server for tests of the client."""

from __future__ import annotations

import argparse

from drut.cli.bench import ablate, compare, diff, mock, report, search, serve, workloads

HELP = """Measure any OpenAI-compatible server under load (serve), compare engines (compare), find the maximum load
(search) and the effect of each technique of this engine (ablate); show results (report) and changes (diff); list
workloads (workloads), or serve with scripted times (mock)."""

COMMANDS = {
    "serve": serve, "compare": compare, "search": search, "ablate": ablate,
    "report": report, "diff": diff, "workloads": workloads, "mock": mock,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of each command: a module with SUMMARY, DESCRIPTION, EXAMPLES, `add_arguments` and `run`."""
    commands = parser.add_subparsers(metavar="|".join(COMMANDS), dest="bench", required=True)
    for name, command in COMMANDS.items():
        command.add_arguments(commands.add_parser(
            name, help=command.SUMMARY, description=command.DESCRIPTION, examples=command.EXAMPLES))


def run(args: argparse.Namespace) -> int:
    """Runs the chosen command; returns its exit code."""
    return int(COMMANDS[args.bench].run(args))
