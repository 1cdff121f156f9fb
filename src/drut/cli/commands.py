"""The commands, in groups as the help lists them; each is a module of drut.cli that is imported only when chosen."""

from __future__ import annotations

import importlib
from types import ModuleType

from drut.cli.parser import Parser

GROUPS: dict[str, tuple[tuple[str, str], ...]] = {
    "talk to a model": (
        ("run", "answer a prompt, or chat on a terminal"),
        ("chat", "chat with a model, here or on a server"),
        ("generate", "complete one or many prompts, as text or JSON"),
        ("serve", "serve a model over HTTP with OpenAI's API"),
        ("ps", "list the running servers"),
    ),
    "models": (
        ("list", "list the models on this machine, or the catalogue"),
        ("pull", "fetch a model and print its path"),
        ("show", "describe a model without reading its weights"),
        ("rm", "remove fetched models"),
        ("convert", "convert a model to another file format"),
        ("train-drafter", "train a small model that drafts for a model"),
        ("models", "list architectures that run, and known ones that do not"),
    ),
    "measure": (
        ("bench", "measure any OpenAI-compatible server under load"),
        ("eval", "measure the quality of a model"),
        ("profile", "measure the time of each operation of a step"),
        ("roof", "measure the maximum bandwidth and multiply-adds of this machine"),
    ),
    "set up": (
        ("config", "print the settings in effect, and where each is from"),
        ("completion", "print a completion script for bash, zsh or fish"),
        ("help", "describe a command"),
    ),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)
ALIASES = {"inspect": "show"}  # names of earlier versions, which the help leaves out


def module_of(command: str) -> ModuleType:
    """Imports the module of a command: HELP, EXAMPLES, `add_arguments` and `run`."""
    return importlib.import_module(f"drut.cli.{ALIASES.get(command, command).replace('-', '_')}")


def parser_of(command: str) -> Parser:
    """Returns the parser of a command, which has its `run` as a default."""
    module = module_of(command)
    parser = Parser(prog=f"drut {command}", description=module.HELP, examples=getattr(module, "EXAMPLES", ()))
    module.add_arguments(parser)
    parser.add_help_all()
    parser.set_defaults(run=module.run, command=command)
    return parser
