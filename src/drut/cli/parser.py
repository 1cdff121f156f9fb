"""The argument parser of every command: short help, flags in full, errors of one line that name the nearest flag."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import IO, Any, NoReturn

from drut.config import INTERNALS
from drut.errors import RequestError, did_you_mean

Example = tuple[str, str]  # a command line, and what it does
MAX_WIDTH = 100
_TITLE = re.compile(r"^(usage:|[^\s].*:$)", re.MULTILINE)


class Parser(argparse.ArgumentParser):
    """A parser that raises RequestError. Its help leaves out groups of internals, unless `--help-all` asks for them."""

    def __init__(self, *args: Any, examples: Sequence[Example] = (), **options: Any) -> None:
        """`examples`: shown at the end of the help."""
        defaults: dict[str, Any] = {"allow_abbrev": False, "formatter_class": _HelpFormatter, "add_help": False}
        super().__init__(*args, **defaults | options)
        self.examples = tuple(examples)
        self.help_all = self._intermixing = False
        self.add_argument("-h", "--help", action="help", help="print this help")

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args: Sequence[str] | None = None,  # type: ignore[override]
                         namespace: argparse.Namespace | None = None) -> tuple[argparse.Namespace, list[str]]:
        """Parses all of `args`. Raises RequestError for an unknown flag, before it asks for missing ones."""
        args = sys.argv[1:] if args is None else list(args)
        if self._intermixing:
            return super().parse_known_args(args, namespace)
        for word in args:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                break  # what follows is no flag of this parser
            flag = word.partition("=")[0]
            if word.startswith("--") and flag not in self._option_string_actions:
                shown = [name for name, a in self._option_string_actions.items() if a.help != argparse.SUPPRESS]
                self.error(f"no flag {flag}{did_you_mean(flag, shown)}")
        if self._subparsers is not None or "--" in args:
            found, unknown = super().parse_known_args(args, namespace)
        else:
            found, unknown = self._parse_intermixed(args, namespace)
        if unknown:
            self.error(f"unexpected: {' '.join(unknown)}")
        return found, unknown

    def _parse_intermixed(self, args: Sequence[str],
                          namespace: argparse.Namespace | None) -> tuple[argparse.Namespace, list[str]]:
        """Parses so that an optional argument may follow flags: the base class calls `parse_known_args` for it."""
        self._intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = None if action.choices is None else [str(choice) for choice in action.choices]
        if choices is not None and value not in action.choices:  # type: ignore[operator]
            raise argparse.ArgumentError(
                action, f"{value!r} is not one of {', '.join(choices)}{did_you_mean(str(value), choices)}")

    def add_help_all(self) -> None:
        """Adds the flag `--help-all`, if there are groups of internals."""
        if self.internal_flags():
            self.add_argument("--help-all", action=_HelpAll, nargs=0, help="print this help with engine internals")

    def internal_flags(self) -> int:
        """Returns the number of flags in groups of internals."""
        return sum(len(g._group_actions) for g in self._action_groups if (g.title or "").endswith(INTERNALS))

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage_line().replace("%", "%%"), [], [])
        formatter.add_text(self.description)
        for group in self._action_groups:
            if self.help_all or not (group.title or "").endswith(INTERNALS):
                formatter.start_section({"positional arguments": "arguments", "options": "flags"}.get(
                    group.title or "", group.title))
                formatter.add_text(group.description)
                formatter.add_arguments(group._group_actions)
                formatter.end_section()
        return formatter.format_help() + example_lines(self.examples)

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        show(self.format_help(), file)

    def usage_line(self) -> str:
        """Returns the command and its arguments; "[flags]" stands for all flags."""
        words = [self.prog]
        for action in self._get_positional_actions():
            below = isinstance(action, argparse._SubParsersAction)
            name = "COMMAND" if below else str(action.metavar or action.dest)
            words.append({"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(str(action.nargs), name))
        return " ".join([*words, "[flags]"])


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        assert isinstance(parser, Parser)
        parser.help_all = True
        parser.print_help()
        parser.exit()


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps at the terminal's width, and shows a flag once with all its spellings."""

    def __init__(self, prog: str) -> None:
        import shutil

        super().__init__(prog, max_help_position=30, width=min(shutil.get_terminal_size().columns - 1, MAX_WIDTH))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        if isinstance(action, argparse.BooleanOptionalAction):
            return action.option_strings[0].replace("--", "--[no-]", 1)
        names = ", ".join(action.option_strings)
        if action.nargs == 0:
            return names
        return f"{names} {self._format_args(action, self._get_default_metavar_for_optional(action))}"


def example_lines(examples: Sequence[Example]) -> str:
    """Returns the section of examples, one command a line; what it does is next to it, or above where it is long."""
    if not examples:
        return ""
    width = max(len(command) for command, _ in examples)
    lines = [f"  {command:<{width}}  # {text}" for command, text in examples]
    if max(map(len, lines)) > 80:
        lines = [f"  # {text}\n  {command}" for command, text in examples]
    return "\nexamples:\n" + "\n".join(lines) + "\n"


def show(text: str, file: IO[str] | None = None) -> None:
    """Prints help, with bold titles on a terminal that has them."""
    file = sys.stdout if file is None else file
    if file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb":
        text = _TITLE.sub("\x1b[1m\\1\x1b[0m", text)
    file.write(text)
