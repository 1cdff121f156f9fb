"""The data files that ship with Drut (see data/SOURCES.md)."""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import Any

import msgspec


def read_text(name: str) -> str:
    """Returns the text of `data/NAME.gz`."""
    data = files(__package__).joinpath("data", name + ".gz").read_bytes()
    return gzip.decompress(data).decode()


def read_jsonl(name: str) -> list[Any]:
    """Returns the records of `data/NAME.jsonl.gz`, one per line."""
    return [msgspec.json.decode(line) for line in read_text(name + ".jsonl").splitlines()]
