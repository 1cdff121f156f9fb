"""The catalogue: models by short name, from the package and from DRUT_HOME/models.toml."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from drut.errors import RequestError, did_you_mean
from drut.home import home
from drut.model.store.known import KNOWN

FILE = "models.toml"
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
MAX_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """A model by short name: a file of the hub (`repo`, `revision`, `file`), of this machine (`path`), or of a wheel.

    `sampling`: the publisher's recommended sampling parameters. `verified`: this project's tests run the model.
    """

    name: str
    repo: str | None = None
    revision: str = "main"
    file: str | None = None
    path: str | None = None
    bytes: int | None = None
    sha256: str | None = None
    parameters: str | None = None
    licence: str | None = None
    quantization: str | None = None
    source: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    verified: bool = False


_TYPES = {"sampling": dict, "verified": bool, "bytes": int}  # of the fields that are not text
_KEYS = [f.name for f in fields(CatalogueEntry) if f.name != "name"]


def entries() -> dict[str, CatalogueEntry]:
    """Returns the catalogue by name, the package's entries first. RequestError if the user's file is invalid."""
    return {**_packaged(), **_of_user(home() / FILE)}


@functools.cache
def _packaged() -> Mapping[str, CatalogueEntry]:
    text = resources.files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8")
    return _parse(tomllib.loads(text), "catalogue.toml")


def _of_user(path: Path) -> Mapping[str, CatalogueEntry]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise RequestError(f"{path}: longer than {MAX_BYTES} bytes")
        return _parse(tomllib.loads(raw.decode()), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # not TOML or not UTF-8; RequestError is one too and already names the file
        raise error if isinstance(error, RequestError) else RequestError(f"{path}: {error}") from None


def _parse(data: Mapping[str, Any], where: str) -> dict[str, CatalogueEntry]:
    found = {}
    for name, table in data.items():
        if not isinstance(table, dict):
            raise RequestError(f"{where}: {name} is not a table; an entry starts with [{name}]")
        if not name or "/" in name:
            raise RequestError(f"{where}: [{name!r}] is no name: it must not be empty or contain '/'")
        found[name] = _entry(name, table, f"{where}: [{name}]")
    return found


def _entry(name: str, table: dict[str, Any], where: str) -> CatalogueEntry:
    for key, value in table.items():
        if key not in _KEYS:
            raise RequestError(f"{where}: unknown key {key!r}{did_you_mean(key, _KEYS)}")
        kind = _TYPES.get(key, str)
        if type(value) is not kind:
            wanted = {dict: "a table", bool: "true or false", int: "an integer", str: "a string"}[kind]
            raise RequestError(f"{where}: {key} must be {wanted}, not {value!r}")
    for key, value in table.get("sampling", {}).items():
        if key not in SAMPLING or type(value) not in (int, float) or not math.isfinite(value):
            raise RequestError(f"{where}: sampling.{key} = {value!r}; it has numbers for {', '.join(SAMPLING)}")
    wheel = KNOWN.get(name)
    if wheel is not None:
        of_wheel = {"licence": wheel.licence, "bytes": wheel.nbytes, "sha256": wheel.sha256, "file": wheel.file_name}
        table = of_wheel | table
    elif ("repo" in table) == ("path" in table):
        raise RequestError(f"{where}: one of repo and path is needed")
    return CatalogueEntry(name=name, **table)
