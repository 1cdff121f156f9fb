"""The handle of one submitted request: its chunks, its end, and its record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from drut.engine.request.output import Chunk
from drut.engine.service.async_engine import failure_error
from drut.engine.service.messages import Failed, Output
from drut.errors import DrutError, RequestError, UnsupportedError
from drut.server.admission.queued_request import DeadlineError, DrainingError, QueuedRequest, QueueFullError
from drut.server.admission.request_record import RequestRecord

if TYPE_CHECKING:
    from drut.server.admission.admission import AdmissionControl


REASONS: dict[type[DrutError], str] = {
    DeadlineError: "deadline", DrainingError: "shutdown", QueueFullError: "rejected",
    RequestError: "invalid", UnsupportedError: "invalid"}


OnChunk = Callable[[Chunk], None]
OnEnd = Callable[[DrutError | None], None]


class RequestHandle:
    """A submitted request. It calls `on_chunk` with each chunk from the engine, then `on_end` once, in the event loop.

    `on_end` gets the error that ended the request early: RequestError, QueueFullError if it was evicted from the queue
    for another key, DeadlineError, DrainingError, EngineDeadError, or DrutError if its step failed. It gets None if the
    output is complete or was cancelled. Neither callback may raise: messages to other requests are delivered next.
    """

    def __init__(self, ask: QueuedRequest, admission: AdmissionControl, *, arrived: float, serial: int,
                 on_chunk: OnChunk,
                 on_end: OnEnd) -> None:
        self.ask, self._admission, self._on_chunk, self._on_end = ask, admission, on_chunk, on_end
        self.key, self.rank, self.tokens = ask.key, (ask.priority, serial), ask.prompt_tokens
        self.record = RequestRecord(ask.id, ask.key, ask.priority, ask.params.n, arrived, prompt_tokens=self.tokens,
                                    operation=ask.operation, params=ask.params, trace=ask.trace, ignored=ask.ignored)
        self.handle: str | None = None  # the engine's, while it runs
        self.timer: asyncio.TimerHandle | None = None
        self.ended = False
        # by choice
        self._last: dict[int, float] = {}  # time of the latest tokens
        self._first: dict[int, float] = {}  # time of the first token
        self._generated: dict[int, int] = {}  # number of tokens

    @property
    def arrived(self) -> float:
        """Seconds of the monotonic clock."""
        return self.record.arrived

    def cancel(self) -> None:
        """Aborts the request: its pages are free within a step. Does nothing if it has ended."""
        self._end("abort", None)

    def on_message(self, message: Output | Failed) -> None:
        """Handles a message of the engine about this request."""
        if isinstance(message, Failed):
            return self.fail(failure_error(message))
        chunk, now = message.chunk, self._admission.clock()
        if chunk.token_ids:
            self._count(chunk.index, len(chunk.token_ids), now)
        if chunk.completion is not None:
            self.record.complete(chunk.completion)
            generated, first = self._generated.get(chunk.index, 0), self._first.get(chunk.index, now)
            if generated > 1:
                self.record.tpots.append((self._last[chunk.index] - first) / (generated - 1))
        self._on_chunk(chunk)  # it may cancel the ticket
        if message.last:
            self._end(self.record.finish_reason, None)

    def fail(self, error: DrutError) -> None:
        """Ends the request with an error."""
        self._end(next((name for kind, name in REASONS.items() if isinstance(error, kind)), "error"), error)

    def expire(self) -> None:
        """Ends the request because its deadline has passed."""
        state = "in the queue" if self.record.admitted is None else f"after {self.record.completion_tokens} tokens"
        self.fail(DeadlineError(f"the deadline of {self.ask.deadline_s:g} s passed {state}"))

    def _count(self, index: int, count: int, now: float) -> None:
        record, observer = self.record, self._admission.observer
        before = self._last.get(index)
        if before is not None:
            observer.gap((now - before) / count, count)
        else:
            self._first[index] = now
            if count > 1:  # they arrived together with the first
                observer.gap(0.0, count - 1)
        self._last[index] = record.last_token = now
        generated = self._generated[index] = self._generated.get(index, 0) + count
        if not self.ask.scoring:
            record.completion_tokens += count
            record.longest = max(record.longest, generated)
            observer.generated(count)
        if record.first_token is None:
            record.first_token = now
            observer.first_token(record)
            self._admission.first_output(self)
        self._admission.charge(self, count)

    def _end(self, reason: str, error: DrutError | None) -> None:
        if self.ended:
            return
        self.ended = True
        self.record.finished = self._admission.clock()
        self.record.finish_reason, self.record.error = reason, str(error) if error else ""
        if self.timer is not None:
            self.timer.cancel()
        self._admission.finished(self)
        self._on_end(error)
