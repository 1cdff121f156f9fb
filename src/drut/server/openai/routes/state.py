"""`GET /health`, `/ready`, `/version`, `/metrics`."""

from __future__ import annotations

import msgspec

from drut import __version__
from drut.server.http.exchange import Exchange
from drut.server.openai.protocol.models import State, Version
from drut.server.service import Service


async def health(exchange: Exchange, service: Service, caller: str) -> None:
    """Replies 200 while the process serves and its engine has not ended. It never waits for a request."""
    if service.health.alive():
        return await exchange.reply(200, msgspec.json.encode(State("ok")))
    await exchange.reply(503, msgspec.json.encode(State("dead", "the engine has ended")))


async def ready(exchange: Exchange, service: Service, caller: str) -> None:
    """Replies 200 if a request would be accepted now."""
    able, reason = service.health.ready()
    if able:
        return await exchange.reply(200, msgspec.json.encode(State("ready")))
    await exchange.reply(503, msgspec.json.encode(State("not ready", reason)))


async def version(exchange: Exchange, service: Service, caller: str) -> None:
    numerics = service.loaded.fingerprint if service.loaded is not None else None
    await exchange.reply(200, msgspec.json.encode(Version(__version__, numerics, service.name)))


async def metrics(exchange: Exchange, service: Service, caller: str) -> None:
    kind, text = service.metrics.render()
    await exchange.reply(200, text, kind.encode())
