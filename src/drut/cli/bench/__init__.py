"""`drut bench`: servers under load, alone or side by side, and a scripted server to prove the client on."""

from __future__ import annotations

import argparse

from drut.cli.bench import ablate, compare, diff, mock, report, search, serve, workloads

HELP = """Measure any OpenAI-compatible server under load (serve), engines side by side (compare), what load one takes
(search) and what each technique of this engine buys (ablate); show what was measured (report) and what changed (diff);
say what may be sent (workloads), or be a server whose times follow a script (mock)."""

COMMANDS = {
    "serve": serve, "compare": compare, "search": search, "ablate": ablate,
    "report": report, "diff": diff, "workloads": workloads, "mock": mock,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of each command. A command is a module with SUMMARY, DESCRIPTION, `add_arguments` and `run`."""
    commands = parser.add_subparsers(metavar="|".join(COMMANDS), dest="bench", required=True)
    for name, command in COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=command.SUMMARY, description=command.DESCRIPTION))


def run(args: argparse.Namespace) -> int:
    """Runs the command that was chosen; the exit code."""
    return int(COMMANDS[args.bench].run(args))
