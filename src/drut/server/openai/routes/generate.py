"""Generation: from an HTTP request to its reply, for every dialect."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from drut.model.tokenizer import Tokenizer
from drut.server.admission import DeadlineError, QueuedRequest, QueueFullError
from drut.server.http.exchange import HttpExchange
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.render.dialect import Dialect
from drut.server.openai.render.parts import parts
from drut.server.openai.render.wire import OPENAI, Wire
from drut.server.service import SMALL_REPLY, Loaded, Service
from drut.server.stream.assembler import Assembler
from drut.server.stream.events import stream
from drut.server.stream.prepared_request import PreparedRequest
from drut.server.stream.reply_size import ReplySize
from drut.server.stream.run import RequestRun

MakeDialect = Callable[[PreparedRequest, Assembler, Tokenizer | None], Dialect]
Prepare = Callable[[bytes, Service, Loaded, str],
                   PreparedRequest]  # the first argument is the body, the last the caller's id


@dataclass(frozen=True)
class Generation:
    """One dialect: how a body becomes a prepared request, how output becomes a reply, and how that is encoded."""

    prepare: Prepare
    dialect: MakeDialect
    wire: Wire = OPENAI


async def generate(exchange: HttpExchange, service: Service, caller: str, how: Generation) -> None:
    """Reads, prepares and submits a request, and sends its reply. Errors before the first chunk are raised."""
    arrived, loaded = time.monotonic(), service.model()
    body = await read_json(exchange, service)
    job = await service.off_loop(lambda: how.prepare(body, service, loaded, caller))
    size = ReplySize.of(job, loaded.texts.room)
    service.limits.check_reply(size)
    await _compile(service, loaded, job, arrived)
    tokenizer = loaded.texts.tokenizer
    assembler = Assembler(job, tokenizer)
    dialect = how.dialect(job, assembler, tokenizer)
    headers = [(b"x-drut-ignored", ", ".join(job.ignored).encode())] if job.ignored else []
    async with AsyncExitStack() as held:
        await held.enter_async_context(_room(service, job, size, arrived))
        backlog = service.config.max_backlog_kb * 1000
        run = await held.enter_async_context(RequestRun(assembler, exchange, backlog=backlog))
        records = [run.submit(loaded.admission, ask) for ask in asks(job, caller, arrived, exchange.trace)]
        if job.timings:
            assembler.records = records
        if job.stream:
            return await stream(exchange, run, job, assembler, dialect, how.wire, service, headers=headers)
        await run.wait_for_end()
        made = parts(dialect.reply(sorted(assembler.take(), key=lambda piece: piece.index)))
        if size.bytes <= SMALL_REPLY:
            return await exchange.reply(200, b"".join(made), headers=headers)
        await exchange.reply_in_parts(200, run.while_connected(service.in_parts(made)), headers=headers)


async def _compile(service: Service, loaded: Loaded, job: PreparedRequest, arrived: float) -> None:
    """Compiles the constraint of `job`. DeadlineError if its deadline passes before that is done."""
    if not job.constraints:
        return
    left = None if job.deadline_s is None else arrived + job.deadline_s - time.monotonic()
    try:
        async with asyncio.timeout(left):
            await loaded.compilers.check(job.constraints, service.off_loop)
    except TimeoutError:
        raise DeadlineError(f"the deadline of {job.deadline_s:g} s passed in the queue") from None


@asynccontextmanager
async def _room(service: Service, job: PreparedRequest, size: ReplySize, arrived: float) -> AsyncIterator[None]:
    """Holds memory for the reply while the block runs. DeadlineError or QueueFullError if it is not free in time."""
    left = math.inf if job.deadline_s is None else arrived + job.deadline_s - time.monotonic()
    patience_s, begun = min(left, service.config.max_wait_s), False
    try:
        async with service.reply_memory.hold(size.bytes, patience_s):
            begun = True
            yield
    except TimeoutError:
        if begun:
            raise
        if left <= service.config.max_wait_s:
            raise DeadlineError(f"the deadline of {job.deadline_s:g} s passed in the queue") from None
        raise QueueFullError(f"other replies take all of the {service.limits.reply_bytes / 1e6:g} MB that replies may "
                             "take at a time", service.config.max_wait_s) from None


def asks(job: PreparedRequest, caller: str, arrived: float, trace: Mapping[str, str]) -> Iterator[QueuedRequest]:
    """Yields one request for admission per prompt."""
    for i, prompt in enumerate(job.prompts):
        yield QueuedRequest(prompt=prompt.ids, params=job.params, key=caller, priority=job.priority, salt=job.salt,
                            deadline_s=job.deadline_s, arrived=arrived,
                            id=job.id if len(job.prompts) == 1 else f"{job.id}-{i}",
                            follows=i > 0, operation=job.operation, scoring=job.scoring, trace=trace,
                            ignored=job.ignored)


async def read_json(exchange: HttpExchange, service: Service) -> bytes:
    """Reads a body whose Content-Type is JSON: an HTML form of another site's page cannot send one."""
    kind = exchange.header("content-type").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "the header Content-Type must be application/json", code="unsupported_media_type")
    return await exchange.body(service.limits.body_bytes, service.config.body_timeout_s)
