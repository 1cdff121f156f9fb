"""The OpenAPI 3.1 document, made from the structs that decode requests and encode replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from drut import __version__
from drut.server.openai.docs.notes import STATUSES, note_of
from drut.server.openai.protocol.chat import ChatReply, ChatRequest
from drut.server.openai.protocol.completions import CompletionReply, CompletionRequest
from drut.server.openai.protocol.errors import ErrorReply
from drut.server.openai.protocol.models import (
    DetokenizeReply,
    DetokenizeRequest,
    ModelCard,
    ModelList,
    ServerState,
    TokenizeReply,
    TokenizeRequest,
    Version,
)


@dataclass(frozen=True)
class Operation:
    """One route. `reply` is a struct type, or the media type of a reply that has none."""

    method: str
    path: str
    summary: str
    reply: type | str
    request: type | None = None
    statuses: tuple[int, ...] = ()
    example: Mapping[str, object] | None = None  # a request


WITHOUT_DEFAULTS = ("Reply", "Choice", "Card", "State", "Message")  # ends of names of structs whose fields have none
ASKED = (400, 404, 408, 413, 415, 429, 500, 503, 504)
OPERATIONS = (
    Operation(method="post", path="/v1/chat/completions",
              summary="continues a conversation; with stream, as server-sent events", reply=ChatReply,
              request=ChatRequest, statuses=ASKED,
              example={"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 64}),
    Operation(method="post", path="/v1/completions", summary="continues prompts; with stream, as server-sent events",
              reply=CompletionReply, request=CompletionRequest, statuses=ASKED,
              example={"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0}),
    Operation(method="get", path="/v1/models", summary="the names of this server's model", reply=ModelList,
              request=None, statuses=(503,)),
    Operation(method="get", path="/v1/models/{name}", summary="one of these models", reply=ModelCard, request=None,
              statuses=(404, 503)),
    Operation(method="post", path="/tokenize", summary="token ids of a text or a conversation", reply=TokenizeReply,
              request=TokenizeRequest, statuses=ASKED, example={"prompt": "Once upon a time"}),
    Operation(method="post", path="/detokenize", summary="the text of token ids", reply=DetokenizeReply,
              request=DetokenizeRequest, statuses=ASKED, example={"tokens": [72, 105]}),
    Operation(method="get", path="/health", summary="200 while the engine is alive; needs no key", reply=ServerState,
              request=None, statuses=(503,)),
    Operation(method="get", path="/ready", summary="200 while requests are accepted; needs no key", reply=ServerState,
              request=None, statuses=(503,)),
    Operation("get", "/version", "version, numerics id and model", Version),
    Operation("get", "/metrics", "metrics in Prometheus format", "text/plain"),
)


def openapi(*, keyless: bool, defaults: Mapping[str, object] = MappingProxyType({})) -> bytes:
    """Returns the document as JSON. `defaults`: values of fields that this server has in place of the usual ones."""
    forms = {f for op in OPERATIONS for f in (op.request, op.reply) if isinstance(f, type)} | {ErrorReply}
    ordered = sorted(forms, key=lambda form: form.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    by_form = dict(zip(ordered, schemas, strict=True))
    for name, schema in components.items():
        for field, value in schema.get("properties", {}).items():
            annotate(name, field, value, defaults)
    paths: dict[str, dict[str, Any]] = {}
    for op in OPERATIONS:
        paths.setdefault(op.path, {})[op.method] = _operation(op, by_form, keyless)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "drut", "version": __version__, "description": "An OpenAI-compatible server of one model."},
        "paths": paths,
        "components": {"schemas": components},
    }
    if not keyless:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return msgspec.json.encode(document)


def annotate(struct: str, field: str, schema: dict[str, Any], defaults: Mapping[str, object]) -> None:
    """Adds the meaning of a field to its schema, and of a request's field its default. A default that is no value of
    the type, such as "random", is in `x-default`."""
    note = note_of(struct, field)
    if note is None:
        return
    schema["description"] = note.text
    default = defaults.get(field, note.default)
    if default is not None and not struct.endswith(WITHOUT_DEFAULTS):
        worded = isinstance(default, str) and not any("enum" in part for part in schema.get("anyOf", ()))
        schema["x-default" if worded else "default"] = default


def _operation(op: Operation, schemas: Mapping[type, Any], keyless: bool) -> dict[str, Any]:
    if isinstance(op.reply, str):
        content: dict[str, Any] = {op.reply: {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schemas[op.reply]}}
        if "server-sent" in op.summary:
            content["text/event-stream"] = {"schema": {"type": "string"}}
    public = op.path in ("/health", "/ready")
    statuses = (*op.statuses, 403) if keyless else op.statuses if public else (*op.statuses, 401)
    error = ServerState if public else ErrorReply
    made: dict[str, Any] = {
        "summary": op.summary,
        "responses": {"200": {"description": "success", "content": content}} | {
            str(status): {"description": STATUSES[status],
                          "content": {"application/json": {"schema": schemas[error if status == 503 else ErrorReply]}}}
            for status in statuses},
    }
    if op.request is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {
            "schema": schemas[op.request], "example": op.example}}}
    if "{name}" in op.path:
        made["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if not keyless and not public:
        made["security"] = [{"key": []}]
    return made
