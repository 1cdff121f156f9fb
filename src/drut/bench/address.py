"""Where a server is, at which path it answers what, and how far its certificate is trusted."""

from __future__ import annotations

import re
import ssl
from urllib.parse import SplitResult, parse_qsl, urlsplit

from drut.errors import RequestError

_API = "/v1"
_ROUTES = ("/chat/completions", "/completions")
_VERSION = re.compile(r"v\d+[a-z0-9]*")


class Address:
    """The paths of a server. They are asked for by their usual names; what begins with `/v1/` is of its API.

    A URL's path with a version in it (`/v1`, `/api/v3`, `/v1beta/openai`) is the API's own, any other is followed by
    `/v1`. A URL that ends in `/chat/completions` or `/completions` is that route, and `endpoint`, added to the URL's
    path, is the route of either. The URL's query goes with every path.
    """

    def __init__(self, url: str, endpoint: str | None = None) -> None:
        """Raises RequestError where the URL or the endpoint is none, or both name a route."""
        parts = split(url)
        base = parts.path.rstrip("/")
        route = next((route for route in _ROUTES if base.endswith(route)), None)
        self.url, self._query = url, f"?{parts.query}" if parts.query else ""
        self._fixed = None if route is None else base
        if endpoint is not None:
            if route is not None:
                raise RequestError(f"--endpoint is added to the URL, which ends in {route} already")
            if not endpoint.startswith("/") or not _sendable(endpoint) or "?" in endpoint or "#" in endpoint:
                raise RequestError(f"--endpoint must be a path such as /v1/chat/completions, not {endpoint!r}")
            self._fixed = base + endpoint
        base = base.removesuffix(route or "")
        segments = base.split("/")
        first = next((i for i, part in enumerate(segments) if _VERSION.fullmatch(part)), None)
        self._api = base + _API if first is None else base
        self._root = "/".join(segments[:first])

    def path(self, name: str) -> str:
        """Of `/v1/chat/completions`, `/v1/models`, `/metrics` or another, with the query. Raises RequestError for a
        route of completions other than the one that was named."""
        route = name.removeprefix(_API)
        if self._fixed is not None and route in _ROUTES:
            fixed = next((known for known in _ROUTES if self._fixed.endswith(known)), route)
            if fixed != route:
                raise RequestError(f"{self._fixed} is of {'chats' if fixed == _ROUTES[0] else 'completions'}, and "
                                   f"--api asks for {'chats' if route == _ROUTES[0] else 'completions'}")
            return self._fixed + self._query
        return (self._api + route if name.startswith(f"{_API}/") else self._root + name) + self._query

    def whole(self, name: str) -> str:
        """The same as a URL."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{self.path(name)}"


def split(url: str) -> SplitResult:
    """The parts of a URL of a server. Raises RequestError where it is none, or has a password, which would end up in
    what a run writes."""
    if not _sendable(url):
        raise RequestError(f"the URL {url!r} has a space or another character that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise RequestError(f"the URL {url!r}: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise RequestError("the URL must hold no user and password: --header 'Authorization: Basic ...' sends them")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise RequestError(f"the URL must be http://HOST[:PORT] or https://HOST[:PORT], not {url!r}")
    if parts.fragment:
        raise RequestError(f"the URL {url!r} has a fragment, which no server gets")
    return parts


def shown(url: str) -> str:
    """For what a run writes: without the values of the query, of which one may be a key."""
    parts = urlsplit(url)
    query = "&".join(f"{name}=..." for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    return parts._replace(query=query).geturl()


def _sendable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


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
