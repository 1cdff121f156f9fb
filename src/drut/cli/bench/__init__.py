"""`drut bench`: measures servers under load, and compares them; with a scripted server for tests of the client."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from drut.cli.bench import ablate, compare, diff, mock, report, search, serve, workloads

HELP = """Measure any OpenAI-compatible server under load (serve), compare engines (compare), find the maximum load
(search) and the effect of each technique of this engine (ablate); show results (report) and changes (diff); list
workloads (workloads), or serve with scripted times (mock)."""

COMMANDS = {
    "serve": serve, "compare": compare, "search": search, "ablate": ablate,
    "report": report, "diff": diff, "workloads": workloads, "mock": mock,
}


def examples(commands: Sequence[str]) -> str:
    """Returns the end of a help page: commands to copy, one a line."""
    return "\n".join(["examples:", *(f"  {command}" for command in commands)])


class ExampleFormatter(argparse.HelpFormatter):
    """Wraps text, but leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of each command: a module with SUMMARY, DESCRIPTION, `add_arguments` and `run`."""
    commands = parser.add_subparsers(metavar="|".join(COMMANDS), dest="bench", required=True)
    for name, command in COMMANDS.items():
        command.add_arguments(commands.add_parser(
            name, help=command.SUMMARY, description=command.DESCRIPTION, epilog=examples(command.EXAMPLES),
            formatter_class=ExampleFormatter, allow_abbrev=False))


def run(args: argparse.Namespace) -> int:
    """Runs the chosen command; returns its exit code."""
    return int(COMMANDS[args.bench].run(args))
