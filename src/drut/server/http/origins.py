"""Cross-origin requests: which web pages may call the server from a browser."""

from __future__ import annotations

import re

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from drut.errors import RequestError
from drut.server.config import ServerConfig

ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@,]+", re.IGNORECASE)
READABLE = ("retry-after", "x-drut-ignored", "x-request-id")  # reply headers that a page's script may read


def allowed(config: ServerConfig) -> list[str]:
    """Returns the origins of pages that may call. RequestError for an entry that is no origin."""
    origins = [origin.strip() for origin in config.allowed_origins.split(",") if origin.strip()]
    for origin in origins:
        if origin != "*" and not ORIGIN.fullmatch(origin):
            raise RequestError(f"allowed_origins: {origin!r} is not an origin such as http://localhost:3000, nor *")
    return origins


def shared(app: ASGIApp, config: ServerConfig) -> ASGIApp:
    """Returns `app` with CORS headers if the configuration allows origins; preflights need no API key."""
    if not (origins := allowed(config)):
        return app
    return CORSMiddleware(app, allow_origins=origins, allow_methods=("GET", "POST"), allow_headers=("*",),
                          expose_headers=READABLE)
