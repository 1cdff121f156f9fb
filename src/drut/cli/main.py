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
    ("pull", "fetch a model and say where it lies"),
    ("generate", "answer prompts"),
    ("chat", "talk with a model"),
    ("serve", "answer requests over HTTP, as OpenAI's clients expect it"),
    ("inspect", "say what a model is, without reading its weights"),
    ("convert", "write a model as another file"),
    ("models", "say which architectures run, and which are known and do not"),
    ("roof", "measure what this machine can do at most"),
    ("profile", "measure where the time of a step goes"),
    ("eval", "measure how good a model's answers are"),
    ("bench", "measure any OpenAI-compatible server under load"),
)
FAULT_EXIT, USAGE_EXIT, INTERRUPT_EXIT, BROKEN_PIPE_EXIT = 1, 2, 130, 141


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line, like every other error of the user's."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message} (see {self.prog} --help)")


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser of `drut`; only `command`'s own module is imported and adds its arguments."""
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
    """Run one command line. Returns the exit code: a user's error is one line on standard error and 2."""
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
            print(end="", flush=True)  # a closed pipe shows here, not when the interpreter ends
    except DrutError as error:
        print(f"drut: error: {one_line(str(error))}", file=sys.stderr)
        return USAGE_EXIT
    except KeyboardInterrupt:
        return INTERRUPT_EXIT
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE_EXIT
    except OSError as error:  # a full disk, for one
        where = f"{error.filename}: " if error.filename else ""
        print(f"drut: error: {one_line(f'{where}{error.strerror or error}')}", file=sys.stderr)
        _drop_output()
        return FAULT_EXIT


def _drop_output() -> None:
    """Has what is still buffered not fail once more when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def entry() -> NoReturn:
    """The console script. Characters that the terminal's encoding lacks are escaped, not an error; output is dropped
    where the caller closed its stream."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, open until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
