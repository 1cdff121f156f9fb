"""Admission control: gives the engine as much as keeps it busy and queues the rest, in fair order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drut.engine.request.params import FilledParams
from drut.engine.service.async_engine import Sink
from drut.engine.service.messages import EngineReady
from drut.errors import DrutError, EngineDeadError, RequestError
from drut.server.admission.drain import DrainMeter
from drut.server.admission.fair import FairQueue
from drut.server.admission.queued_request import DrainingError, QueuedRequest, QueueFullError
from drut.server.admission.request_handle import OnChunk, OnEnd, RequestHandle
from drut.server.admission.request_record import NullObserver, Observer

STEPS_AHEAD = 2  # steps of prompt tokens that the engine may hold of requests without output


class EngineClient(Protocol):
    """The part of AsyncEngine that admission control uses."""

    @property
    def ready(self) -> EngineReady: ...
    @property
    def dead(self) -> str | None: ...
    def open(self, prompt: str | list[int], params: FilledParams, sink: Sink, *, name: str = "", priority: int = 0,
             salt: str = "", lean: bool = False) -> str: ...
    def abort(self, handle: str) -> None: ...
    def on_death(self, watcher: Callable[[str], None]) -> None: ...


@dataclass(frozen=True)
class AdmissionLimits:
    """Limits of the queue: `max_queue` requests with `max_queue_tokens` prompt tokens.

    `max_wait_s`: maximum expected wait, by the rate at which requests left the engine while others waited.
    `look_ahead`: sequences given to the engine beyond those it computes at a time, so that it never idles between two.
    """

    max_queue: int = 256
    max_queue_tokens: int | None = None
    max_wait_s: float | None = None
    look_ahead: int = 4


class AdmissionControl:
    """Queues requests for one engine, and refuses them if the queue is full: backpressure. Use it in one event loop."""

    def __init__(self, engine: EngineClient, limits: AdmissionLimits | None = None, *, observer: Observer | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """`observer` observes every request; `clock` returns seconds."""
        self._engine, self.limits, self.clock = engine, limits or AdmissionLimits(), clock
        self.observer: Observer = observer or NullObserver()
        self._queue: FairQueue[RequestHandle] = FairQueue()
        self._running: set[RequestHandle] = set()
        self._without_output: set[RequestHandle] = set()  # running, before their first output
        self._drain = DrainMeter(clock())
        self._idle = asyncio.Event()
        self._serial = 0
        self._dispatching = False
        self.draining = False
        engine.on_death(lambda reason: self._dispatch())

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def waiting_tokens(self) -> int:
        """Prompt tokens of the requests in the queue."""
        return self._queue.tokens

    @property
    def running(self) -> int:
        """Requests in the engine."""
        return len(self._running)

    def submit(self, ask: QueuedRequest, on_chunk: OnChunk, on_end: OnEnd) -> RequestHandle:
        """Queues a request. Its chunks and its end go to the callbacks, possibly before this returns.

        RequestError if it can never fit, QueueFullError if the queue is full, DrainingError at shutdown,
        EngineDeadError if the engine has ended.
        """
        if self._engine.dead is not None:
            raise EngineDeadError(self._engine.dead)
        room = self._engine.ready.room
        if not isinstance(ask.prompt, str) and len(ask.prompt) >= room:
            raise RequestError(
                f"the prompt has {len(ask.prompt)} tokens; the context length of {room} leaves none for output")
        if self.draining:
            raise DrainingError("the server is shutting down")
        self._serial += 1
        now = self.clock()
        ticket = RequestHandle(ask, self, arrived=now if ask.arrived is None else ask.arrived, serial=self._serial,
                               on_chunk=on_chunk, on_end=on_end)
        if self._queue or not self._fits(ticket):
            self._make_room(ticket, now)
        if ask.deadline_s is not None:
            left = ticket.arrived + ask.deadline_s - now
            ticket.timer = asyncio.get_running_loop().call_later(max(0.0, left), ticket.expire)
        self._queue.enter(ticket)
        self._idle.clear()
        self._dispatch()
        return ticket

    async def drain(self, deadline_s: float) -> int:
        """Accepts no further request, and waits until the accepted ones are done. Those that are not done after
        `deadline_s` seconds end with a DrainingError; returns how many did."""
        self.draining = True
        if not (self._running or self._queue):
            return 0
        try:
            await asyncio.wait_for(self._idle.wait(), deadline_s)
        except TimeoutError:
            return self.end_all(DrainingError(f"the server is shutting down; it waited {deadline_s:g} s"))
        return 0

    def end_all(self, error: DrutError) -> int:
        """Ends every open request with `error`; returns their number."""
        self.draining = True
        count = 0
        while self._queue:
            self._queue.peek().fail(error)
            count += 1
        for ticket in list(self._running):
            ticket.fail(error)
            count += 1
        return count

    def first_output(self, ticket: RequestHandle) -> None:
        """Notes that `ticket` has its first output, which may let the engine take another request."""
        self._without_output.discard(ticket)
        self._dispatch()

    def charge(self, ticket: RequestHandle, tokens: int) -> None:
        """Charges `tokens` served tokens to the key of `ticket`."""
        self._queue.charge(ticket.key, tokens)

    def finished(self, ticket: RequestHandle) -> None:
        """Removes `ticket`, which has ended, from the queue or the engine."""
        now = self.clock()
        if ticket in self._running:
            self._running.remove(ticket)
            self._without_output.discard(ticket)
            if ticket.handle is not None:
                self._engine.abort(ticket.handle)
            exact = ticket.record.prompt_tokens - ticket.record.cached_tokens
            self._queue.charge(ticket.key, exact - ticket.tokens)
            self._drain.finished(ticket.tokens, now)
        else:
            self._queue.remove(ticket)
        self._queue.leave(ticket.key)
        self.observer.observe(ticket.record)
        self._dispatch()

    def _dispatch(self) -> None:
        """Gives the engine the requests that it should have now. If the engine is dead, every waiting request fails."""
        if self._dispatching:
            return  # called from within the loop below, as a request ended while it was started: the loop continues
        self._dispatching = True
        try:
            while self._queue and (self._engine.dead is not None or self._fits(self._queue.peek())):
                self._start(self._queue.peek())
        finally:
            self._dispatching = False
        now = self.clock()
        self._drain.state(busy=bool(self._running), backlog=bool(self._queue), now=now)
        if not (self._running or self._queue):
            self._idle.set()

    def _start(self, ticket: RequestHandle) -> None:
        ask = ticket.ask
        self._queue.remove(ticket)
        self._queue.charge(ticket.key, ticket.tokens)
        self._running.add(ticket)
        self._without_output.add(ticket)
        try:
            ticket.handle = self._engine.open(ask.prompt, ask.params, ticket.on_message, name=ask.id,
                                              priority=ask.priority, salt=ask.salt, lean=True)
        except DrutError as error:
            return ticket.fail(error)
        ticket.record.admitted = self.clock()

    def _fits(self, ticket: RequestHandle) -> bool:
        """Returns whether the engine should have `ticket` now: a sequence is free or nearly so, and the prompts of
        requests without output are few, so that the request would not wait inside the engine."""
        if not self._running:
            return True
        ready = self._engine.ready
        sequences = sum(min(t.ask.params.n, ready.max_seqs) for t in self._running)
        if sequences + min(ticket.ask.params.n, ready.max_seqs) > ready.max_seqs + self.limits.look_ahead:
            return False
        waiting = sum(t.tokens for t in self._without_output)
        return (len(self._without_output) < self.limits.look_ahead
                or waiting + ticket.tokens <= STEPS_AHEAD * ready.step_tokens)

    def _make_room(self, ticket: RequestHandle, now: float) -> None:
        """Makes room in the queue for `ticket`. A full queue evicts a request of the key with the most waiting, which
        fails with QueueFullError, or rejects `ticket`, which raises it."""
        most_tokens = self.limits.max_queue_tokens
        places = self._places(ticket, now)
        if len(self._queue) >= places:  # `places` may be fewer than wait already: still only one is evicted
            self._evict_one(ticket, now, by_tokens=False, excess=len(self._queue) - places)
        while most_tokens is not None and self._queue and self._queue.tokens + ticket.tokens > most_tokens:
            self._evict_one(ticket, now, by_tokens=True)

    def _evict_one(self, ticket: RequestHandle, now: float, *, by_tokens: bool, excess: int = 0) -> None:
        """Ends a waiting request or rejects `ticket`. `excess`: requests in the queue beyond its places."""
        victim = self._queue.victim_for(ticket, by_tokens=by_tokens)
        loser = victim or ticket
        needed, queued = (loser.tokens, self._queue.tokens) if by_tokens else (1, len(self._queue))
        wait = self._drain.retry_after_s(needed=needed, queued=queued, excess=excess, by_tokens=by_tokens, now=now)
        held = f"{self._queue.tokens} prompt tokens" if by_tokens else f"{len(self._queue)} requests"
        error = QueueFullError(f"the queue is full: {held} are waiting; try again in {wait:.0f} s", wait)
        if victim is not None:
            return victim.fail(error)
        ticket.record.finished, ticket.record.finish_reason = now, "rejected"
        self.observer.observe(ticket.record)
        raise error

    def _places(self, ticket: RequestHandle, now: float) -> int:
        """Returns how many requests may wait, `ticket` included. Requests in the engine without output go first, so
        they reduce the number that can start within `max_wait_s`."""
        limits = self.limits
        soon = None if limits.max_wait_s is None or ticket.ask.follows else self._drain.within(limits.max_wait_s, now)
        return limits.max_queue if soon is None else min(limits.max_queue, max(1, soon - len(self._without_output)))
