"""`drut completion`: prints a script for a shell. On Tab the shell runs drut, which completes a line by its parsers."""

from __future__ import annotations

import argparse
import glob
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import argcomplete
from argcomplete.shell_integration import shellcode

from drut.cli.commands import COMMANDS, parser_of
from drut.cli.parser import Parser
from drut.errors import DrutError, RequestError, did_you_mean

HELP = """Print a script that completes commands, flags, their values and names of models. It takes effect in shells
that start after it was installed, or at once with eval or source."""
EXAMPLES = (
    ("echo 'eval \"$(drut completion bash)\"' >> ~/.bashrc", "bash"),
    ("echo 'eval \"$(drut completion zsh)\"' >> ~/.zshrc", "zsh, after compinit"),
    ("drut completion fish > ~/.config/fish/completions/drut.fish", "fish"),
)
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the shell."""
    parser.add_argument("shell", metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> int:
    """Prints the script."""
    if args.shell not in SHELLS:
        raise RequestError(f"no script for {args.shell!r}{did_you_mean(args.shell, SHELLS)}: one of "
                           f"{', '.join(SHELLS)}")
    print(shellcode(["drut"], shell=args.shell))
    return 0


def complete() -> NoReturn:
    """Answers a shell's request, which is in the environment, and ends the process. Only the parser of the command on
    the line is made."""
    line = os.environ.get("COMP_LINE", "")[:int(os.environ.get("COMP_POINT", "0"))]
    words = f"{line}|".split()  # the last one is still being typed
    command = words[1] if len(words) > 2 else None
    parser = Parser(prog="drut")
    commands = parser.add_subparsers()
    for name, text in COMMANDS:
        if name == command:
            chosen = _help_parser() if name == "help" else parser_of(name)
            _add_names(chosen)
            commands._choices_actions.append(commands._ChoicesPseudoAction(name, [], text))
            commands._name_parser_map[name] = chosen
        else:
            commands.add_parser(name, help=text)
    argcomplete.autocomplete(parser, always_complete_options=False)
    sys.exit(1)


def _help_parser() -> Parser:
    parser = Parser(prog="drut help")
    parser.add_argument("command", choices=[name for name, _ in COMMANDS])
    return parser


def _add_names(parser: Parser) -> None:
    """Adds the completion of names of models and of commands to the arguments that take them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_names(below)
        match str(action.metavar):
            case "MODEL":
                names: Callable[[], list[str]] = _models
            case "SHELL":
                names = lambda: list(SHELLS)  # noqa: E731
            case "PROMPT":
                names = list
            case _:
                continue
        action.completer = _Names(names, files=names is _models)  # type: ignore[attr-defined]


class _Names:
    """A completer in the form of argcomplete: names, or paths if no name fits."""

    def __init__(self, names: Callable[[], list[str]], *, files: bool) -> None:
        self._names, self._files = names, files

    def __call__(self, prefix: str, **_: object) -> list[str]:
        found = [name for name in self._names() if name.startswith(prefix)]
        if found or not self._files:
            return found
        return [path + "/" * os.path.isdir(path) for path in glob.glob(glob.escape(prefix) + "*")]


def _models() -> list[str]:
    from drut.model.store.disk import model_names

    try:
        return model_names()
    except DrutError:
        return []
