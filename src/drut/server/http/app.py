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

    def __init__(self, service: Service, handler: Handler, *, public: bool = False, wire: Wire = OPENAI) -> None:
        self._service, self._handler, self._public, self._wire = service, handler, public, wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = HttpExchange(scope, receive, send)
        try:
            self._service.hosts.check(exchange.header("host"))
            caller = "" if self._public else self._service.keys.caller(exchange.header("authorization"))
            await self._handler(exchange, self._service, caller)
        except ClientGoneError:
            pass
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


class App:
    """The routes of `service`, over HTTP only."""

    def __init__(self, service: Service) -> None:
        self._service = service
        guarded, public = partial(Endpoint, service), partial(Endpoint, service, public=True)
        get, post = ["GET"], ["POST"]

        def answer(how: Generation) -> Endpoint:
            return guarded(partial(generate, how=how), wire=how.wire)

        self._router = Router(redirect_slashes=False, default=self._nothing_here, routes=[
            Route("/health", public(state.health), methods=get),
            Route("/ready", public(state.ready), methods=get),
            Route("/version", guarded(state.version), methods=get),
            Route("/metrics", guarded(state.metrics), methods=get),
            Route("/docs", guarded(show_docs), methods=get),
            Route("/openapi.json", guarded(show_openapi), methods=get),
            *(Route(prefix + path, handler, methods=methods) for prefix in PREFIXES for path, handler, methods in (
                ("/models", guarded(list_models), get),
                ("/models/{name:path}", guarded(show_model), get),
                *((path, answer(how), post) for path, how in GENERATIONS.items()))),
            Route("/tokenize", guarded(tokenize), methods=post),
            Route("/detokenize", guarded(detokenize), methods=post),
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
            await self._refuse(error, scope, receive, send)

    async def _nothing_here(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = ApiError(404, "this path does not exist; GET /docs lists those that do", code="not_found")
        await self._refuse(error, scope, receive, send)

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        self._service.metrics.count_reply(error.status)
        await HttpExchange(scope, receive, send).fail(error)
