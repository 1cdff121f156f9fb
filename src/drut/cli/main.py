"""The command line: `drut COMMAND`, each command a module that is imported only when chosen."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from drut import __version__
from drut.cli.terminal import one_line
from drut.errors import DrutError, RequestError

COMMANDS = (
    ("pull", "fetch a model and print its path"),
    ("generate", "answer prompts"),
    ("chat", "chat with a model"),
    ("serve", "serve a model over HTTP with OpenAI's API"),
    ("inspect", "describe a model without reading its weights"),
    ("convert", "convert a model to another file format"),
    ("models", "list architectures that run, and known ones that do not"),
    ("roof", "measure the maximum bandwidth and multiply-adds of this machine"),
    ("profile", "measure the time of each operation of a step"),
    ("eval", "measure the quality of a model"),
    ("bench", "measure any OpenAI-compatible server under load"),
)
FAULT_EXIT, USAGE_EXIT, INTERRUPT_EXIT, BROKEN_PIPE_EXIT = 1, 2, 130, 141


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, like all other errors of a user."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message} (see {self.prog} --help)")


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """Returns the parser of `drut`; only the module of `command` is imported and adds its arguments."""
    parser = Parser(prog="drut", description="LLM inference: exact, explained, fast.")
    parser.add_argument("--version", action="version", version=f"drut {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name, text in COMMANDS:
        subparser = commands.add_parser(name, help=text)
        if name == command:
            module = importlib.import_module(f"drut.cli.{name}")
            subparser.description = module.HELP
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line. Returns the exit code: a user's error is one line on standard error and 2."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            command = next((word for word in argv if not word.startswith("-")), None)
            args, unknown = build_parser(command).parse_known_args(argv)
            where = f"see drut {args.command + ' ' if args.command else ''}--help"
            if unknown:
                raise RequestError(f"unrecognized arguments: {' '.join(unknown)} ({where})")
            if args.command is None:
                raise RequestError(f"a COMMAND is missing: {', '.join(name for name, _ in COMMANDS)} ({where})")
            return int(args.run(args))
        finally:
            print(end="", flush=True)  # raises here for a closed pipe, not when the interpreter ends
    except DrutError as error:
        print(f"drut: error: {one_line(str(error))}", file=sys.stderr)
        return USAGE_EXIT
    except KeyboardInterrupt:
        return INTERRUPT_EXIT
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE_EXIT
    except OSError as error:  # for example, a full disk
        where = f"{error.filename}: " if error.filename else ""
        print(f"drut: error: {one_line(f'{where}{error.strerror or error}')}", file=sys.stderr)
        _drop_output()
        return FAULT_EXIT


def _drop_output() -> None:
    """Discards buffered output, so that it does not fail again when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def entry() -> NoReturn:
    """Runs the console script. Characters that the terminal's encoding lacks are escaped; output is discarded if the
    caller closed its stream."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, open until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
