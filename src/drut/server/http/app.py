"""The ASGI application: routes, their handlers, and which of them need an API key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

from drut.server.http.exchange import ClientGoneError, HttpExchange, Receive, Scope, Send
from drut.server.openai.protocol.errors import ApiError, as_api_error
from drut.server.openai.render.chat import ChatDialect
from drut.server.openai.render.completions import CompletionsDialect
from drut.server.openai.render.wire import OPENAI, Wire
from drut.server.openai.routes import chat, completions, state
from drut.server.openai.routes.docs import show_docs, show_openapi
from drut.server.openai.routes.generate import Generation, generate
from drut.server.openai.routes.models import list_models, show_model
from drut.server.openai.routes.tokenize import detokenize, tokenize
from drut.server.service import Service

log = logging.getLogger("drut.server")

PREFIXES = ("/v1", "")  # of OpenAI's routes: some clients use a server's root as their base URL
Handler = Callable[[HttpExchange, Service, str], Awaitable[None]]  # the last argument is the caller's id


GENERATIONS = {
    "/completions": Generation(completions.prepare, CompletionsDialect),
    "/chat/completions": Generation(chat.prepare, ChatDialect),
}  # by path; a further dialect is one more entry


class Endpoint:
    """One route. It checks the API key unless `public`, and writes every error in the shape of its wire format."""

    def __init__(self, service: Service, path: str, handler: Handler, *, public: bool = False,
                 wire: Wire = OPENAI) -> None:
        self._service, self.path, self._handler, self._public, self._wire = service, path, handler, public, wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = HttpExchange(scope, receive, send)
        try:
            self._service.hosts.check(exchange.header("host"))
            caller = "" if self._public else self._service.keys.caller(exchange.header("authorization"))
            await self._handler(exchange, self._service, caller)
        except ClientGoneError:
            self._service.failures.aborted(scope["method"], self.path, seconds=exchange.age_s, id=exchange.id)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if not exchange.started:
                return await exchange.fail(as_api_error(error), self._wire.error_body)
            log.error("a reply was cut off", exc_info=error)
            exchange.abort()
        finally:
            if exchange.status is not None:
                self._service.metrics.count_reply(exchange.status)
            if exchange.error is not None:
                self._service.failures.failed(exchange.error, scope["method"], self.path, seconds=exchange.age_s,
                                              id=exchange.id)


class App:
    """The routes of `service`, over HTTP only."""

    def __init__(self, service: Service) -> None:
        self._service = service

        def route(method: str, path: str, handler: Handler, *, public: bool = False, wire: Wire = OPENAI) -> Route:
            return Route(path, Endpoint(service, path, handler, public=public, wire=wire), methods=[method])

        self._router = Router(redirect_slashes=False, default=self._nothing_here, routes=[
            route("GET", "/health", state.health, public=True),
            route("GET", "/ready", state.ready, public=True),
            route("GET", "/version", state.version),
            route("GET", "/metrics", state.metrics),
            route("GET", "/docs", show_docs),
            route("GET", "/openapi.json", show_openapi),
            *(made for prefix in PREFIXES for made in (
                route("GET", f"{prefix}/models", list_models),
                route("GET", f"{prefix}/models/{{name:path}}", show_model),
                *(route("POST", prefix + path, partial(generate, how=how), wire=how.wire)
                  for path, how in GENERATIONS.items()))),
            route("POST", "/tokenize", tokenize),
            route("POST", "/detokenize", detokenize),
        ])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope["app"] = self  # makes the router raise its refusals instead of writing them in its own shape
        try:
            await self._router(scope, receive, send)
        except HTTPException as refusal:
            allowed = (refusal.headers or {}).get("Allow", "")
            error = ApiError(refusal.status_code, f"this path supports {allowed}, not {scope['method']}",
                             code="method_not_allowed", allow=allowed)
            route = scope["endpoint"].path if isinstance(scope.get("endpoint"), Endpoint) else "-"
            await self._refuse(error, scope, receive, send, route)

    async def _nothing_here(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = ApiError(404, "this path does not exist; GET /docs lists those that do", code="not_found")
        await self._refuse(error, scope, receive, send)

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send, route: str = "-") -> None:
        self._service.metrics.count_reply(error.status)
        exchange = HttpExchange(scope, receive, send)
        await exchange.fail(error)
        self._service.failures.failed(error, scope["method"], route, seconds=exchange.age_s, id=exchange.id)
