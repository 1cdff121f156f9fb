"""`drut serve --dry-run`: checks everything about a start that needs no weights."""

from __future__ import annotations

from collections.abc import Iterator

from drut.config import EngineConfig
from drut.engine.build import choose_backend
from drut.engine.draft import open_drafter
from drut.engine.memory_plan import MemoryPlan
from drut.kernels.kv import PAGE_TOKENS
from drut.model.model import open_model
from drut.model.store import find
from drut.parse.narrowing import Bounds
from drut.server.config import ServerConfig
from drut.server.http.auth import ApiKeys, Hosts, check_exposure
from drut.server.http.origins import allowed
from drut.server.life.serve import listen, served_names
from drut.server.openai.prompts import PromptProcessor
from drut.server.openai.protocol.errors import ApiError
from drut.server.spans import open_spans


def calls_of(texts: PromptProcessor) -> str:
    """Returns how the model writes tool calls, or why it cannot call tools."""
    try:
        return f"calls as {texts.tool_format().name}"
    except ApiError as error:
        return str(error)


def report(model: str, config: ServerConfig, engine: EngineConfig) -> Iterator[str]:
    """Yields lines that describe what a start would use. DrutError for what would fail."""
    keys = ApiKeys.of(config)
    check_exposure(config, keys)
    pages = allowed(config, keyless=not keys)
    Hosts(config, keyless=not keys)
    listen(config).close()
    if config.otlp_endpoint:
        open_spans(config.otlp_endpoint, served_names(config, model)[0]).close()
    yield f"listen on   {config.host}:{config.port}"
    yield f"keys        {len(keys) or 'none: every client that reaches the address may use it'}"
    yield f"web pages   {', '.join(pages) or 'none may call'}"
    yield f"names       {', '.join(served_names(config, model))}"
    path = find(model)
    if path is None:
        yield "model       would be downloaded first; nothing more can be checked"
        return
    files = open_model(path)
    try:
        files.check()
        yield f"model       {path}, weights complete"
        tokenizer = files.tokenizer()
        drafter = open_drafter(engine, files.spec, tokenizer, locate=find)
        needs = MemoryPlan.of(files.spec, engine, draft=drafter.plan if drafter is not None else None)
        if drafter is not None:
            yield f"drafter     {drafter.path}, weights complete"
            drafter.close()
        texts = PromptProcessor(tokenizer, files.spec.vocab, needs.room, config.max_text_chars,
                                tool_parser=config.tool_parser, reasoning_parser=config.reasoning_parser,
                                special_tokens=config.special_tokens_in_messages,
                                tool_bounds=Bounds(config.tool_string_chars, config.tool_array_items))
        yield f"tokenizer   {'none: prompts are token ids' if texts.tokenizer is None else 'good'}"
        yield f"template    {'good' if texts.templates is not None else texts.why_no_chat}"
        if texts.templates is not None:
            yield f"reasoning   {'between ' + ' and '.join(texts.marks) if texts.marks else 'none'}"
            yield f"tools       {calls_of(texts)}"
        yield f"context     {needs.room} tokens of a prompt and its answer"
        held = ", ".join(f"{n * PAGE_TOKENS} tokens{f' of windows of {kv.window}' * (kv.window > 0)}"
                         for kv, n in zip(needs.layouts, needs.pages, strict=True))
        yield f"KV cache    {held}, {needs.kv_bytes / 1e9:.3f} GB, format {engine.kv_dtype}"
        backend = choose_backend(engine)
        try:
            yield f"weights     {files.outline(backend).nbytes / 1e9:.3f} GB in memory"
            yield f"compute     {backend.describe()}, in a {config.engine}"
        finally:
            backend.close()
    finally:
        files.close()
    for name in config.names():
        if name not in ("host", "port", "api_key", "api_key_file", "served_model_name", "engine"):
            yield f"{name:18} {getattr(config, name)}"
