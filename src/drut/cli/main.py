"""The command line: `drut COMMAND`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from drut import __version__
from drut.cli.commands import ALIASES, COMMANDS, parser_of
from drut.cli.overview import overview
from drut.cli.parser import show
from drut.cli.terminal import one_line
from drut.errors import DrutError, RequestError, did_you_mean

FAULT_EXIT, USAGE_EXIT, INTERRUPT_EXIT, BROKEN_PIPE_EXIT = 1, 2, 130, 141
HELP_FLAGS = ("-h", "--help", "--help-all")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line. Returns the exit code: a user's error is one line on standard error and 2."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            return _run(list(argv))
        finally:
            print(end="", flush=True)  # raises here for a closed pipe, not when the interpreter ends
    except DrutError as error:
        _report(str(error))
        return USAGE_EXIT
    except KeyboardInterrupt:
        return INTERRUPT_EXIT
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE_EXIT
    except OSError as error:  # for example, a full disk
        where = f"{error.filename}: " if error.filename else ""
        _report(f"{where}{error.strerror or error}")
        _drop_output()
        return FAULT_EXIT


def _run(argv: list[str]) -> int:
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"] if argv[1:] and argv[1] not in HELP_FLAGS else []
    if not argv or argv[0] in HELP_FLAGS:
        show(overview())
        return 0
    command, rest = argv[0], argv[1:]
    if command == "--version":
        print(f"drut {__version__}")
        return 0
    names = [*(name for name, _ in COMMANDS), *ALIASES]
    if command not in names:
        what = "flag" if command.startswith("-") else "command"
        known = [*HELP_FLAGS, "--version"] if what == "flag" else names
        raise RequestError(f"no {what} {command}{did_you_mean(command, known)} (see drut --help)")
    args = parser_of(command).parse_args(rest)
    return int(args.run(args))


def _report(message: str) -> None:
    with contextlib.suppress(OSError):  # standard error is full or closed, too
        print(f"drut: error: {one_line(message)}", file=sys.stderr, flush=True)


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
    if "_ARGCOMPLETE" in os.environ:
        from drut.cli.completion import complete

        complete()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
