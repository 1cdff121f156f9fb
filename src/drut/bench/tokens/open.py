"""Chooses the tokenizer of the target."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from drut.bench.tokens.local import LocalTokenizer
from drut.bench.tokens.protocol import BenchTokenizer
from drut.bench.tokens.remote import ServerTokenizer
from drut.errors import RequestError
from drut.model.store import entries, find
from drut.model.store.known import KNOWN


def open_tokenizer(
    given: str | None = None, *, model: str, url: str | None = None, headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> BenchTokenizer:
    """Opens `given`, else the tokenizer of `model` if it is on this machine, else the server's at `url`.

    `given` is a known name, `hf:ORG/REPO`, a GGUF file, a folder or a tokenizer.json. Raises RequestError if none is
    available, or the errors of the classes for a given one.
    """
    if given is not None:
        return LocalTokenizer.open(given)
    if model in KNOWN or _is_path(model) or (model in entries() and find(model) is not None):
        return LocalTokenizer.open(model)
    why = ""
    if url is not None:
        try:
            return ServerTokenizer(url, model, headers, tls=tls)
        except RequestError as error:
            why = f", and {error}"
    raise RequestError(f"no tokenizer for model {model!r}: neither a known name nor a path{why}; "
                       "give --tokenizer, a GGUF file, a folder or a tokenizer.json")


def _is_path(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError):  # the name is too long, or the home folder does not exist
        return False
