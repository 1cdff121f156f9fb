"""The commands as data, for the reference in the documentation and for completion."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass

from drut.cli.commands import COMMANDS, parser_of
from drut.cli.parser import Example, Parser
from drut.config import INTERNALS

_DEFAULT = re.compile(r" ?\((?:default: )((?:[^()]|\([^()]*\))*)\)")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A flag with all its spellings, or a positional argument with none. `values`: its metavar or its choices."""

    names: tuple[str, ...]
    values: str
    help: str
    default: str
    group: str
    internal: bool


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command such as `drut run` or `drut bench serve`; `usage` is its first line of help."""

    name: str
    usage: str
    summary: str
    description: str
    arguments: tuple[Argument, ...]
    examples: tuple[Example, ...]


def describe() -> Iterator[Command]:
    """Yields every command in the order of the help, the commands of `bench` after it. Imports all of them."""
    for name, summary in COMMANDS:
        if name != "help":
            yield from _commands(parser_of(name), summary)


def _commands(parser: Parser, summary: str) -> Iterator[Command]:
    arguments: list[Argument] = []
    below: list[tuple[Parser, str]] = []
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                texts = {str(a.dest): a.help or "" for a in action._choices_actions}
                below += [(p, texts.get(name, "")) for name, p in action.choices.items()]
            elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                arguments.append(_argument(parser, action, group.title or ""))
    yield Command(name=parser.prog, usage=parser.usage_line(), summary=summary, examples=parser.examples,
                  description=" ".join((parser.description or "").split()), arguments=tuple(arguments))
    for command, text in below:
        yield from _commands(command, text)


def _argument(parser: Parser, action: argparse.Action, group: str) -> Argument:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    found = _DEFAULT.search(text)
    values = "" if action.nargs == 0 else "|".join(map(str, action.choices or ())) or str(
        action.metavar or action.dest.upper())
    names = tuple(action.option_strings)
    if isinstance(action, argparse.BooleanOptionalAction):
        names, values = (action.option_strings[0].replace("--", "--[no-]", 1),), ""
    return Argument(names=names, values=values, help=_DEFAULT.sub("", text, count=1), group=group,
                    default=found[1] if found else "", internal=group.endswith(INTERNALS))
