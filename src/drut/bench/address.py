"""The URLs of a server's routes, and the verification of its TLS certificate."""

from __future__ import annotations

import re
import ssl
from urllib.parse import SplitResult, parse_qsl, urlsplit

from drut.errors import RequestError

_API = "/v1"
_ROUTES = ("/chat/completions", "/completions")
_VERSION = re.compile(r"v\d+[a-z0-9]*")


class Address:
    """Maps route names to the URLs of a server. Routes are named as usual; a name that begins with `/v1/` belongs to
    the API.

    If the URL's path contains a version (`/v1`, `/api/v3`, `/v1beta/openai`), that path is the root of the API; to any
    other path `/v1` is added. A URL that ends in `/chat/completions` or `/completions` fixes that route, and
    `endpoint`, added to the URL's path, fixes the route of both. The query of the URL is part of every path.
    """

    def __init__(self, url: str, endpoint: str | None = None) -> None:
        """Raises RequestError if the URL or the endpoint is invalid, or if both name a route."""
        parts = split(url)
        base = parts.path.rstrip("/")
        route = next((route for route in _ROUTES if base.endswith(route)), None)
        self.url, self._query = url, f"?{parts.query}" if parts.query else ""
        self._fixed = None if route is None else base
        if endpoint is not None:
            if route is not None:
                raise RequestError(f"--endpoint is added to the URL, which already ends in {route}")
            if not endpoint.startswith("/") or not _sendable(endpoint) or "?" in endpoint or "#" in endpoint:
                raise RequestError(f"--endpoint must be a path such as /v1/chat/completions, not {endpoint!r}")
            self._fixed = base + endpoint
        base = base.removesuffix(route or "")
        segments = base.split("/")
        first = next((i for i, part in enumerate(segments) if _VERSION.fullmatch(part)), None)
        self._api = base + _API if first is None else base
        self._root = "/".join(segments[:first])

    def path(self, name: str) -> str:
        """Returns the path, with the query, of `/v1/chat/completions`, `/v1/models`, `/metrics` or another route.
        Raises RequestError for a completions route other than the fixed one."""
        route = name.removeprefix(_API)
        if self._fixed is not None and route in _ROUTES:
            fixed = next((known for known in _ROUTES if self._fixed.endswith(known)), route)
            if fixed != route:
                raise RequestError(f"{self._fixed} serves {'chats' if fixed == _ROUTES[0] else 'completions'}, and "
                                   f"--api asks for {'chats' if route == _ROUTES[0] else 'completions'}")
            return self._fixed + self._query
        return (self._api + route if name.startswith(f"{_API}/") else self._root + name) + self._query

    def whole(self, name: str) -> str:
        """Returns the URL of a route."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{self.path(name)}"


def split(url: str) -> SplitResult:
    """Parses the URL of a server. Raises RequestError if it is invalid or contains a password, because results contain
    the URL."""
    if not _sendable(url):
        raise RequestError(f"the URL {url!r} has a space or another character that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise RequestError(f"the URL {url!r}: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise RequestError("the URL must not contain user or password: use --header 'Authorization: Basic ...'")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise RequestError(f"the URL must be http://HOST[:PORT] or https://HOST[:PORT], not {url!r}")
    if parts.fragment:
        raise RequestError(f"the URL {url!r} has a fragment, which is never sent to a server")
    return parts


def shown(url: str) -> str:
    """Returns the URL for results: without the values of the query, because one of them may be a key."""
    parts = urlsplit(url)
    query = "&".join(f"{name}=..." for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    return parts._replace(query=query).geturl()


def _sendable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def tls_context(verify: bool = True, ca_file: str | None = None) -> ssl.SSLContext:
    """Returns the TLS context for https. Raises RequestError if the certificates cannot be read."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise RequestError(f"cannot read certificates from {ca_file}: {error}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
