"""`GET /health`, `/ready`, `/version`, `/metrics`."""

from __future__ import annotations

import msgspec

from drut import __version__
from drut.server.http.exchange import HttpExchange
from drut.server.openai.protocol.models import ServerState, Version
from drut.server.service import Service


async def health(exchange: HttpExchange, service: Service, caller: str) -> None:
    """Replies 200 while the process serves and its engine has not ended. It never waits for a request."""
    if service.health.alive():
        return await exchange.reply(200, msgspec.json.encode(ServerState("ok")))
    await exchange.reply(503, msgspec.json.encode(ServerState("dead", "the engine has ended")))


async def ready(exchange: HttpExchange, service: Service, caller: str) -> None:
    """Replies 200 if a request would be accepted now."""
    able, reason = service.health.ready()
    if able:
        return await exchange.reply(200, msgspec.json.encode(ServerState("ready")))
    await exchange.reply(503, msgspec.json.encode(ServerState("not ready", reason)))


async def version(exchange: HttpExchange, service: Service, caller: str) -> None:
    numerics = service.loaded.fingerprint if service.loaded is not None else None
    await exchange.reply(200, msgspec.json.encode(Version(__version__, numerics, service.name)))


async def metrics(exchange: HttpExchange, service: Service, caller: str) -> None:
    kind, text = service.metrics.render()
    await exchange.reply(200, text, kind.encode())
