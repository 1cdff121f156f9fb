"""Writes docs/reference.md, the reference of commands, from their parsers: `python -m tests.docs.reference`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from textwrap import fill

from drut.cli.describe import Argument, Command, describe
from drut.config import EngineConfig
from drut.server.config import ServerConfig
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference.md"
HEAD = """# Reference

Written by `python -m tests.docs.reference` from the parsers. Defaults are in parentheses. `drut COMMAND --help` has
longer texts and explains flags that are listed here without one; `--help-all` explains internals.
"""
VARIABLES = {
    "DRUT_HOME": "models, packed weights, chat history, `roof.json` (`~/.cache/drut`)",
    "DRUT_MODEL": "the model of run, chat, generate and serve",
    "DRUT_CONFIG": "file of settings (`~/.config/drut.toml`)",
    "DRUT_PEERS": "environments of other engines ([engines.md](engines.md))",
    "HF_TOKEN": "access to gated repositories of the Hugging Face hub",
    "NO_COLOR": "no colours",
}

MAX_LIST = 4  # arguments that are no table
ESCAPED = "\\|"  # in a table
NOTES = re.compile(r" \((?:see |docs/)[^)]*\)| \[[A-Z_]+\]")  # which other pages have
TITLES = {"positional arguments": "common", "options": "common"}  # of flags without a group
BRIEF = ("drut bench serve", "drut bench compare", "drut bench search", "drut bench ablate", "the server", "the load",
         "drut eval", "drut train-drafter")  # commands and groups that other pages and `--help` explain


def rows(arguments: Sequence[Argument], brief: bool = False) -> Iterator[str]:
    """A table or a short list of arguments, then the names of those without a text: internals, or all if `brief`."""
    plain = [a for a in arguments if not (brief or a.internal)]
    table = len(plain) > MAX_LIST
    if table:
        yield from ("flag | meaning", "---|---")
    for a in plain:
        name = " ".join([", ".join(a.names), a.values]).strip().replace("|", ESCAPED)
        text = f"{NOTES.sub('', a.help.partition(';')[0]).strip()}{default(a)}"
        yield f"`{name}` | {text}" if table else f"- `{name.replace(ESCAPED, '|')}`: {text}"
    if names := [f"`{a.names[0]}`" for a in arguments if a not in plain]:
        yield fill(("\n" if brief else "\nInternals: ") + ", ".join(names) + ".", 120, break_on_hyphens=False,
                   replace_whitespace=False)


def default(a: Argument) -> str:
    return f" ({a.default})" if a.default else ""


def section(command: Command, shared: Collection[Argument]) -> Iterator[str]:
    own = [a for a in command.arguments if a not in shared and a.names]
    if not own and not command.examples:
        return
    yield from (f"\n## {command.name}\n", f"`{command.usage.removesuffix(' [flags]')}`: {command.summary}.", "")
    lines = [line for line, _ in command.examples if line != command.name and not line.endswith("--json")]
    yield from (f"    {line}" for line in lines[:1] if " -" in line or not own)
    yield from ("", *rows(own, command.name in BRIEF), "")
    if titles := dict.fromkeys(a.group for a in command.arguments if a in shared and not a.internal):
        yield "And: " + ", ".join(f"[{title}](#{anchor(title)})" for title in titles) + "."


def anchor(title: str) -> str:
    return f"flags-{title.replace(' ', '-')}"


def variables() -> dict[str, str]:
    """What each environment variable sets: a flag of a command, or what VARIABLES has."""
    flags = {f.metadata["env"]: f"`--{f.name.replace('_', '-')}`" for config in (ServerConfig, EngineConfig)
             for f in fields(config) if f.metadata["env"]}
    return {**VARIABLES, **flags}


def variable_lines() -> Iterator[str]:
    """A table of variables; those with the name of their flag are listed before it."""
    plain = {name: text for name, text in sorted(variables().items())
             if text != f"`--{name.removeprefix('DRUT_').lower().replace('_', '-')}`"}
    same = ", ".join(f"`{name}`" for name in sorted(variables()) if name not in plain)
    yield fill(f"Each of these sets the flag of its name: {same}.", 120, break_on_hyphens=False)
    yield from ("", "variable | sets", "---|---")
    yield from (f"`{name}` | {text}" for name, text in plain.items())


def page() -> str:
    """Returns the whole page."""
    commands = [replace(c, arguments=tuple(replace(a, group=TITLES.get(a.group, a.group)) for a in c.arguments
                                           if a.names != ("--help-all",))) for c in describe()]
    counts = Counter(a for command in commands for a in command.arguments)
    shared = [a for a, count in counts.items() if count > 1 and a.names]
    lines = [HEAD.rstrip()]
    for command in commands:
        lines += section(command, shared)
    titles = dict.fromkeys(a.group for a in shared if not a.internal)
    for title in titles:
        lines += [f"\n## Flags: {title}\n", *rows([a for a in shared if a.group.startswith(title)], title in BRIEF)]
    lines += ["\n## Environment variables\n", *variable_lines()]
    text = "\n".join(lines) + "\n"
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
