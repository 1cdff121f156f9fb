"""`GET /docs` and `/openapi.json`."""

from __future__ import annotations

import dataclasses
import json

from drut.server.http.exchange import HttpExchange
from drut.server.openai.docs.page import page
from drut.server.openai.protocol.openapi import openapi
from drut.server.service import Service

HTML = b"text/html; charset=utf-8"
POLICY = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'")
FROM_MODEL = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


async def show_openapi(exchange: HttpExchange, service: Service, caller: str) -> None:
    await exchange.reply(200, document(service))


async def show_docs(exchange: HttpExchange, service: Service, caller: str) -> None:
    address = f"{exchange.scope['scheme']}://{exchange.header('host') or 'localhost'}"
    html = await service.off_loop(lambda: page(json.loads(document(service)), model=service.name, address=address))
    await exchange.reply(200, html, HTML, [POLICY])


def document(service: Service) -> bytes:
    """Returns the OpenAPI document, with the loaded model's defaults of sampling."""
    defaults: dict[str, object] = {"special_tokens_in_messages": service.config.special_tokens_in_messages}
    if service.loaded is not None:
        sampling = service.loaded.texts.sampling
        defaults |= {f.name: value for f in dataclasses.fields(sampling)
                     if f.name in FROM_MODEL and (value := getattr(sampling, f.name)) is not None}
    return openapi(keyless=not service.keys, defaults=defaults)
