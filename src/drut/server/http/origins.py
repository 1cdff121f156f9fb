"""Cross-origin requests: which web pages may call the server from a browser."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from drut.errors import RequestError
from drut.server.config import ServerConfig
from drut.server.http.failures import FailureLog
from drut.server.openai.protocol.errors import ApiError

ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://[^\s/?#@,*]+", re.IGNORECASE)
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
READABLE = ("retry-after", "x-drut-ignored", "x-request-id")  # reply headers that a page's script may read
MAX_AGE_S = 3600  # for which a browser may keep the reply to a preflight


def allowed(config: ServerConfig, *, keyless: bool) -> list[str]:
    """Returns the origins of pages that may call, as browsers write them. RequestError for an entry that is no origin,
    and for * if the server is `keyless`: then every page that a user of this machine opens could use it."""
    origins = [_origin(text.strip()) for text in config.cors_origins.split(",") if text.strip()]
    if keyless and "*" in origins:
        raise RequestError("--cors-origins *: every web page could use this server; set an API key or name origins")
    return origins


def _origin(text: str) -> str:
    if text == "*":
        return text
    if (found := ORIGIN.fullmatch(text)) is None:
        raise RequestError(f"--cors-origins: {text!r} is not an origin such as http://localhost:3000 (scheme, host and "
                           "port, without a path), nor *")
    return text.lower().removesuffix(DEFAULT_PORTS.get(found[1].lower(), " "))


class SharedOrigins(CORSMiddleware):
    """CORS headers for pages of some origins. Preflights need no API key; they allow every request header, since
    clients add their own, such as OpenAI's `x-stainless-*`."""

    def __init__(self, app: ASGIApp, origins: list[str], failures: FailureLog) -> None:
        super().__init__(app, allow_origins=origins, allow_methods=("GET", "POST"), allow_headers=("*",),
                         allow_private_network=True, expose_headers=READABLE, max_age=MAX_AGE_S)
        self._failures = failures

    def preflight_response(self, request_headers: Headers) -> Response:
        """Returns the reply to a preflight; a refused one is logged, because the browser shows no reason."""
        response = super().preflight_response(request_headers)
        if response.status_code >= 400:
            origin = request_headers["origin"] if ORIGIN.fullmatch(request_headers["origin"]) else ""
            cause = "only GET and POST" if self.is_allowed_origin(request_headers["origin"]) else "--cors-origins"
            self._failures.failed(ApiError(response.status_code, f"origin {origin[:80]!r} ({cause})",
                                           code="preflight_refused"), "OPTIONS")
        return response
