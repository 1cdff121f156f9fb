"""Parses contestants: an engine, optionally with its own files and flags."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec

from drut.bench.compare.names import check_names
from drut.bench.engines.engine import EngineFiles
from drut.bench.engines.files import LAYOUTS
from drut.errors import RequestError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_URL = ("http://", "https://")
_OWN = (*LAYOUTS, "label", "tokenizer", "port")


class CompareEntry(msgspec.Struct, frozen=True):
    """A contestant before it is started. `files` replaces fields of the model's `EngineFiles`; `port` None: any free
    port."""

    name: str
    engine: str
    flags: tuple[str, ...] = ()
    files: dict[str, Any] = {}
    port: int | None = None

    def of(self, files: EngineFiles) -> EngineFiles:
        """Returns the files that this contestant reads."""
        return msgspec.structs.replace(files, **self.files)


def parse_entries(texts: list[str]) -> list[CompareEntry]:
    """Parses `ENGINE`, several separated by commas, or `[LABEL=]ENGINE [gguf=FILE ...] [--flag ...]`. Raises
    RequestError."""
    entries = [_entry(part) for text in texts for part in _parts(text)]
    check_names([entry.name for entry in entries], "no engine was given",
                "two contestants are named {}; LABEL=ENGINE gives another name")
    return entries


def _parts(text: str) -> list[str]:
    return text.split(",") if not re.search(r"[\s=]", text) else [text]


def _entry(text: str) -> CompareEntry:
    try:
        first, *words = shlex.split(text) or [""]
    except ValueError as error:
        raise RequestError(f"contestant {text[:80]!r}: {error}") from None
    label, equals, engine = first.partition("=")
    engine = engine if equals else label
    if not _NAME.fullmatch(label) or not (_NAME.fullmatch(engine) or engine.startswith(_URL)):
        raise RequestError(f"contestant {text[:80]!r}: expected ENGINE or LABEL=ENGINE [gguf=FILE ...] [--flag "
                           "...], where ENGINE may be a URL, names of letters, digits and . _ + -")
    own: dict[str, str] = {}
    while words and words[0].partition("=")[0] in _OWN and "=" in words[0]:
        key, _, value = words.pop(0).partition("=")
        own[key] = value
    port = own.pop("port", None)
    if port is not None and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise RequestError(f"contestant {label!r}: port must be from 1 to 65535, not {port!r}")
    files = {key: Path(value).expanduser() if key in LAYOUTS else value for key, value in own.items()}
    return CompareEntry(label, engine, tuple(words), files, None if port is None else int(port))
