"""`POST /tokenize` and `/detokenize`."""

from __future__ import annotations

import msgspec

from drut.server.http.exchange import HttpExchange
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.protocol.fields import check_unused, decode
from drut.server.openai.protocol.models import DetokenizeReply, DetokenizeRequest, TokenizeReply, TokenizeRequest
from drut.server.openai.protocol.tools import check_tools
from drut.server.openai.render.parts import lazily, parts
from drut.server.openai.render.scores import Speller
from drut.server.openai.routes.chat import chat_text
from drut.server.openai.routes.chat_messages import plain_messages
from drut.server.openai.routes.generate import read_json
from drut.server.service import Loaded, Service


async def tokenize(exchange: HttpExchange, service: Service, caller: str) -> None:
    loaded, body = service.model(), await read_json(exchange, service)
    reply, ignored = await service.off_loop(lambda: _tokenize(body, service, loaded))
    await exchange.reply(200, reply, headers=ignored)


async def detokenize(exchange: HttpExchange, service: Service, caller: str) -> None:
    loaded, body = service.model(), await read_json(exchange, service)
    reply, ignored = await service.off_loop(lambda: _detokenize(body, service, loaded))
    await exchange.reply(200, reply, headers=ignored)


Reply = tuple[bytes, list[tuple[bytes, bytes]]]


def _tokenize(body: bytes, service: Service, loaded: Loaded) -> Reply:
    request, ignored = decode(body, TokenizeRequest, strict=service.config.strict_fields)
    service.check_model(request.model)
    if (request.prompt is None) == (request.messages is None):
        raise ApiError(400, "set either prompt or messages", param="prompt")
    texts = loaded.texts
    if request.prompt is not None:
        ids = texts.encode(request.prompt, add_special=request.add_special_tokens is not False)
    else:
        if request.add_special_tokens:
            raise ApiError(400, "add_special_tokens: the chat template adds its own", param="add_special_tokens")
        messages = plain_messages(request.messages or [], service, short_ids=texts.wants_short_ids)
        tools = check_tools(request.tools, service.limits.tools)
        prompt, unused = chat_text(texts, messages, request.chat_template_kwargs or {}, tools, request)
        ignored += check_unused(unused, strict=service.config.strict_fields)
        ids = texts.chat_ids(prompt, fit=False)
    reply = TokenizeReply(count=len(ids), max_model_len=texts.room, tokens=lazily(ids))
    if request.return_token_strs:
        speller = Speller(texts.tokenizer, skip_special=False)
        reply.token_strs = lazily(speller.text(i) for i in ids)
    return b"".join(parts(reply)), named(ignored)


def _detokenize(body: bytes, service: Service, loaded: Loaded) -> Reply:
    request, ignored = decode(body, DetokenizeRequest, strict=service.config.strict_fields)
    service.check_model(request.model)
    tokenizer = loaded.texts.encoder()
    for worst in (min(request.tokens, default=0), max(request.tokens, default=0)):
        if not 0 <= worst < tokenizer.vocab_size:
            raise ApiError(400, f"tokens: id {worst} is outside the vocabulary of {tokenizer.vocab_size}",
                           param="tokens")
    service.limits.check_text(sum(len(tokenizer.token_bytes(i)) for i in request.tokens))
    reply = DetokenizeReply(tokenizer.decode(request.tokens, skip_special=False))
    return msgspec.json.encode(reply), named(ignored)


def named(ignored: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Returns the header that names the fields without effect."""
    return [(b"x-drut-ignored", ", ".join(ignored).encode())] if ignored else []
