"""`drut bench`: servers under load, alone or side by side, and a scripted server to prove the client on."""

from __future__ import annotations

import argparse

from drut.cli.bench import mock, search, serve, workloads

HELP = """Measure any OpenAI-compatible server under load (serve), find how much load it takes (search), say what may be
sent to it (workloads), or be a server whose service times follow a script (mock)."""

COMMANDS = {"serve": serve, "search": search, "workloads": workloads, "mock": mock}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of each command. A command is a module with SUMMARY, DESCRIPTION, `add_arguments` and `run`."""
    commands = parser.add_subparsers(metavar="|".join(COMMANDS), dest="bench", required=True)
    for name, command in COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=command.SUMMARY, description=command.DESCRIPTION))


def run(args: argparse.Namespace) -> int:
    """Runs the command that was chosen; the exit code."""
    return int(COMMANDS[args.bench].run(args))
