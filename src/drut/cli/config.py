"""`drut config`: prints the settings in effect, and where each is from."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from drut.cli.settings import FILE_ENV, MODEL_ENV, file_name, groups, part, read
from drut.cli.table import table
from drut.cli.terminal import note

HELP = f"""Print the settings that commands use, and where each is from: an environment variable, the file, or the
default. The file is ~/.config/drut.toml (or drut.toml in XDG_CONFIG_HOME); {FILE_ENV} names another one. It has the
flags' names with _ for -, and `model`."""
EXAMPLES = (
    ("drut config", "settings that differ from the defaults"),
    ("drut config --all", "all settings"),
    ("echo 'port = 9000' >> ~/.config/drut.toml", "set one"),
)
SECRET = ("api_key",)


class SettingValue(NamedTuple):
    """A setting in effect; `source`: a variable, a file or "default"."""

    name: str
    value: Any
    source: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to print, and the format."""
    parser.add_argument("--all", action="store_true", help="settings that have their default, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object of all settings")


def run(args: argparse.Namespace) -> int:
    """Prints a table or JSON. API keys are not shown."""
    values = list(effective(read(), os.environ))
    if args.json:
        print(json.dumps({v.name: {"value": v.value, "source": v.source} for v in values}))
        return 0
    path = file_name()
    note(f"file: {path}" + ("" if path.exists() else " (does not exist)"))
    rows = [[v.name, _shown(v.value), v.source] for v in values if args.all or v.source != "default"]
    if rows:
        print(table(["SETTING", "VALUE", "FROM"], rows))
    else:
        note("all settings have their defaults (--all lists them)")
    return 0


def effective(file: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[SettingValue]:
    """Yields every setting: `model`, then those of server and engine. Raises RequestError for an invalid value."""
    source = MODEL_ENV if environ.get(MODEL_ENV) else str(file_name()) if "model" in file else "default"
    yield SettingValue("model", environ.get(MODEL_ENV) or file.get("model"), source)
    for group in groups():
        config = group.resolve({}, environ, part(file, group))
        for f in dataclasses.fields(group):
            env = f.metadata["env"]
            source = env if env and environ.get(env) else str(file_name()) if f.name in file else "default"
            value = getattr(config, f.name)
            yield SettingValue(f.name, "(not shown)" if f.name in SECRET and value else value, source)


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
