"""Where a server is, and how far its word on that is trusted."""

from __future__ import annotations

import ssl
from urllib.parse import SplitResult, urlsplit

from drut.errors import RequestError


def split(url: str) -> SplitResult:
    """The parts of a URL of a server. Raises RequestError where it is none, or has a password, which would end up in
    what a run writes."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise RequestError(f"the URL {url!r}: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise RequestError("the URL must hold no user and password: --header 'Authorization: Basic ...' sends them")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RequestError(f"the URL must be http://HOST[:PORT] or https://HOST[:PORT], not {url!r}")
    return parts


def tls_context(verify: bool = True, ca_file: str | None = None) -> ssl.SSLContext:
    """For https. Raises RequestError where the certificates cannot be read."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise RequestError(f"cannot read certificates from {ca_file}: {error}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
