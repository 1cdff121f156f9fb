"""`GET /docs` and `/openapi.json`."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import msgspec

from drut.server.http.exchange import HttpExchange
from drut.server.openai.protocol.openapi import OPERATIONS, Operation, openapi
from drut.server.service import Service

HTML = b"text/html; charset=utf-8"
POLICY = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
STYLE = "body{font:15px/1.5 system-ui;max-width:60em;margin:2em auto;padding:0 1em}code{background:#eee;padding:0 .2em}"


async def show_openapi(exchange: HttpExchange, service: Service, caller: str) -> None:
    await exchange.reply(200, openapi(keyless=not service.keys))


async def show_docs(exchange: HttpExchange, service: Service, caller: str) -> None:
    parts = "".join(part for op in OPERATIONS for part in _section(op))
    page = (f"<!doctype html><html lang=en><meta charset=utf-8><title>drut</title><style>{STYLE}</style>"
            f"<h1>drut</h1><p>{escape(service.name)}. Machine-readable: <code>/openapi.json</code></p>{parts}</html>")
    await exchange.reply(200, page.encode(), HTML, [POLICY])


def _section(op: Operation) -> Iterator[str]:
    yield f"<h2><code>{op.method.upper()} {escape(op.path)}</code></h2><p>{escape(op.summary)}</p>"
    if op.request is not None:
        fields = msgspec.structs.fields(op.request)
        items = "".join(f"<li><code>{f.encode_name}</code>{' (required)' * f.required}" for f in fields)
        yield f"<ul>{items}</ul>"
