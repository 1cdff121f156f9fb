"""Which tokenizer stands for the target."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from drut.bench.tokens.local import LocalTokenizer
from drut.bench.tokens.protocol import Tokenizer
from drut.bench.tokens.remote import ServerTokenizer
from drut.errors import RequestError
from drut.model.store.known import KNOWN


def open_tokenizer(
    given: str | None = None, *, model: str, url: str | None = None, headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Tokenizer:
    """`given` where there is one, else that of `model` if it is on this machine, else the server's at `url`.

    `given` is a known name, `hf:ORG/REPO`, a GGUF file, a folder or a tokenizer.json. RequestError where none can be
    had, or as the classes raise for one that was named.
    """
    if given is not None:
        return LocalTokenizer.open(given)
    if model in KNOWN or _is_path(model):
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
    except (OSError, RuntimeError):  # too long for one; a home that nobody has
        return False
