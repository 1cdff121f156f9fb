"""The user's settings: a file, the environment, and the flags of a command. Precedence: flag, environment, file,
default."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drut.config import EngineConfig, Settings
from drut.errors import RequestError, did_you_mean

MODEL_ENV, FILE_ENV = "DRUT_MODEL", "DRUT_CONFIG"
MAX_BYTES = 1 << 20


def file_name() -> Path:
    """Returns the user's file, which need not exist: DRUT_CONFIG, else drut.toml in XDG_CONFIG_HOME or ~/.config."""
    if os.environ.get(FILE_ENV):
        return Path(os.environ[FILE_ENV]).expanduser()
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else Path("~/.config").expanduser()) / "drut.toml"


def groups() -> tuple[type[Settings], ...]:
    """Returns the groups of settings that a file may have, next to `model`."""
    from drut.server.config import ServerConfig

    return ServerConfig, EngineConfig


def read(given: str | None = None) -> Mapping[str, Any]:
    """Returns the settings of the file `given` (the flag --config), else of the user's file; nothing if there is none.

    A file is TOML or JSON, with the flags' names and _ for -. Raises RequestError if it cannot be read, is no table, or
    has an unknown setting or a wrong value.
    """
    path = file_name() if given is None else Path(given)
    where = f"--config {given}" if given is not None else str(path)
    try:
        data = _parse(path, where)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) and given is None and not os.environ.get(FILE_ENV):
            return {}
        raise RequestError(f"{where}: {error.strerror or error}") from None
    if not isinstance(data, dict):
        raise RequestError(f"{where}: has no table of settings")
    known = ["model", *(name for group in groups() for name in group.names())]
    for key in data:
        if key not in known:
            raise RequestError(f"{where}: unknown setting {key!r}{did_you_mean(key, known)}")
    if not isinstance(data.get("model", ""), str):
        raise RequestError(f"{where}: model must be a string, not {data['model']!r}")
    for group in groups():
        try:
            group.resolve({}, {}, part(data, group))
        except RequestError as error:
            raise RequestError(f"{where}: {error}") from None
    return data


def _parse(path: Path, where: str) -> Any:
    with path.open("rb") as opened:
        raw = opened.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise RequestError(f"{where}: longer than {MAX_BYTES} bytes")
    try:
        if path.suffix == ".json":
            import msgspec

            return msgspec.json.decode(raw)
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where}: {error}") from None


def part(file: Mapping[str, Any], group: type[Settings]) -> dict[str, Any]:
    """Returns the settings of `group` in a file."""
    return {name: file[name] for name in group.names() if name in file}


def engine_config(args: argparse.Namespace, file: Mapping[str, Any] | None = None) -> EngineConfig:
    """Returns the engine's settings: flags, environment, the user's file (or `file`), defaults."""
    return EngineConfig.from_args(args, part(read() if file is None else file, EngineConfig))


def default_model(file: Mapping[str, Any] | None = None) -> str | None:
    """Returns the model of DRUT_MODEL, else of the user's file (or `file`), else None."""
    return os.environ.get(MODEL_ENV) or (read() if file is None else file).get("model")


def model_of(args: argparse.Namespace, file: Mapping[str, Any] | None = None) -> str:
    """Returns the model of a parser with `opening.add_choice`: argument, flag, DRUT_MODEL, the user's file.

    Raises RequestError if there is none, or two.
    """
    given = [name for name in (args.model, args.model_flag) if name is not None]
    if len(given) > 1:
        raise RequestError(f"two models: {given[0]!r} and --model {given[1]!r}")
    name = given[0] if given else default_model(file)
    if name is None:
        raise RequestError(f"a MODEL is needed: an argument, --model, {MODEL_ENV}, or model = 'NAME' in {file_name()}; "
                           "drut list --catalogue has names")
    return str(name)
