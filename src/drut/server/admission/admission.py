"""The way into the engine. It lets in as much as keeps the engine busy; the rest waits here, where order is fair."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drut.engine.async_engine import EngineDeadError, Sink
from drut.engine.messages import Ready
from drut.engine.params import SamplingParams
from drut.errors import DrutError, RequestError
from drut.server.admission.ask import Ask, DrainingError, QueueFullError
from drut.server.admission.drain import DrainMeter
from drut.server.admission.fair import FairQueue
from drut.server.admission.record import Nobody, Observer
from drut.server.admission.ticket import OnChunk, OnEnd, Ticket

STEPS_AHEAD = 2  # of prompt tokens in the engine that nothing was said of yet


class Engine(Protocol):
    """What admission needs of AsyncEngine."""

    @property
    def ready(self) -> Ready: ...
    @property
    def dead(self) -> str | None: ...
    def open(self, prompt: str | list[int], params: SamplingParams, sink: Sink, *, name: str = "", priority: int = 0,
             salt: str = "", lean: bool = False) -> str: ...
    def abort(self, handle: str) -> None: ...
    def on_death(self, watcher: Callable[[str], None]) -> None: ...


@dataclass(frozen=True)
class AdmissionLimits:
    """`max_queue`: requests that may wait, and `max_queue_tokens`: prompt tokens of theirs; `max_wait_s`: no more of
    them than the engine takes in so many seconds, as fast as it last did while others waited. `look_ahead`: sequences
    the engine is given beyond those it computes at a time, so that it never waits for the next."""

    max_queue: int = 256
    max_queue_tokens: int | None = None
    max_wait_s: float | None = None
    look_ahead: int = 4


class Admission:
    """Queues requests for one engine. Use in one event loop."""

    def __init__(self, engine: Engine, limits: AdmissionLimits | None = None, *, observer: Observer | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """`observer` hears of every request; `clock` gives seconds."""
        self._engine, self.limits, self.clock = engine, limits or AdmissionLimits(), clock
        self.observer: Observer = observer or Nobody()
        self._queue: FairQueue[Ticket] = FairQueue()
        self._running: set[Ticket] = set()
        self._silent: set[Ticket] = set()  # running, and nothing said yet
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
        """Prompt tokens of them."""
        return self._queue.tokens

    @property
    def running(self) -> int:
        """Requests in the engine."""
        return len(self._running)

    def submit(self, ask: Ask, on_chunk: OnChunk, on_end: OnEnd) -> Ticket:
        """Queues a request, whose chunks and end go to the callbacks, perhaps before this returns.

        RequestError if it can never fit, QueueFullError if there is no place, DrainingError at shutdown,
        EngineDeadError where the engine has ended.
        """
        if self._engine.dead is not None:
            raise EngineDeadError(self._engine.dead)
        room = self._engine.ready.room
        if not isinstance(ask.prompt, str) and len(ask.prompt) >= room:
            raise RequestError(
                f"the prompt has {len(ask.prompt)} tokens; the room of {room} leaves none for an answer")
        if self.draining:
            raise DrainingError("the server is shutting down")
        self._serial += 1
        now = self.clock()
        ticket = Ticket(ask, self, arrived=now if ask.arrived is None else ask.arrived, serial=self._serial,
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
        """Accepts nothing more, and waits until what was accepted is done. What is left after `deadline_s` ends with a
        DrainingError; returns how many that were."""
        self.draining = True
        if not (self._running or self._queue):
            return 0
        try:
            await asyncio.wait_for(self._idle.wait(), deadline_s)
        except TimeoutError:
            return self.end_all(DrainingError(f"the server is shutting down; it waited {deadline_s:g} s"))
        return 0

    def end_all(self, error: DrutError) -> int:
        """Ends every open request with `error`; returns how many."""
        self.draining = True
        count = 0
        while self._queue:
            self._queue.peek().fail(error)
            count += 1
        for ticket in list(self._running):
            ticket.fail(error)
            count += 1
        return count

    def begun(self, ticket: Ticket) -> None:
        """The engine has said something of `ticket`."""
        self._silent.discard(ticket)
        self._dispatch()

    def charge(self, ticket: Ticket, tokens: int) -> None:
        """`ticket` was served so many tokens."""
        self._queue.charge(ticket.key, tokens)

    def over(self, ticket: Ticket) -> None:
        """`ticket` has ended, wherever it was."""
        now = self.clock()
        if ticket in self._running:
            self._running.remove(ticket)
            self._silent.discard(ticket)
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
        """Hands the engine what it has room for; a dead one refuses all that wait."""
        if self._dispatching:
            return  # a request ended while it was started: the loop below goes on
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

    def _start(self, ticket: Ticket) -> None:
        ask = ticket.ask
        self._queue.remove(ticket)
        self._queue.charge(ticket.key, ticket.tokens)
        self._running.add(ticket)
        self._silent.add(ticket)
        try:
            ticket.handle = self._engine.open(ask.prompt, ask.params, ticket.take, name=ask.id, priority=ask.priority,
                                              salt=ask.salt, lean=True)
        except DrutError as error:
            return ticket.fail(error)
        ticket.record.admitted = self.clock()

    def _fits(self, ticket: Ticket) -> bool:
        """Whether the engine should have it now: sequences are free or nearly so, and it does not wait in there."""
        if not self._running:
            return True
        ready = self._engine.ready
        sequences = sum(min(t.ask.params.n, ready.max_seqs) for t in self._running)
        if sequences + min(ticket.ask.params.n, ready.max_seqs) > ready.max_seqs + self.limits.look_ahead:
            return False
        silent = sum(t.tokens for t in self._silent)
        return len(self._silent) < self.limits.look_ahead or silent + ticket.tokens <= STEPS_AHEAD * ready.step_tokens

    def _make_room(self, ticket: Ticket, now: float) -> None:
        """A place in the queue for `ticket`, if need be at the cost of a key that has more than its share.

        QueueFullError for whoever has to go.
        """
        most_tokens = self.limits.max_queue_tokens
        places = self._places(ticket, now)
        if len(self._queue) >= places:  # which may be fewer than wait already: all but one keep theirs
            self._push_out(ticket, now, by_tokens=False, excess=len(self._queue) - places)
        while most_tokens is not None and self._queue and self._queue.tokens + ticket.tokens > most_tokens:
            self._push_out(ticket, now, by_tokens=True)

    def _push_out(self, ticket: Ticket, now: float, *, by_tokens: bool, excess: int = 0) -> None:
        """Ends the request that has to go, be it another or `ticket`; `excess` others have no place either."""
        victim = self._queue.to_push_out(ticket, by_tokens=by_tokens)
        loser = victim or ticket
        needed, queued = (loser.tokens, self._queue.tokens) if by_tokens else (1, len(self._queue))
        wait = self._drain.retry_after_s(needed=needed, queued=queued, excess=excess, by_tokens=by_tokens, now=now)
        held = f"{self._queue.tokens} prompt tokens" if by_tokens else f"{len(self._queue)} requests"
        error = QueueFullError(f"{held} are waiting, which is all the queue holds; try again in {wait:.0f} s", wait)
        if victim is not None:
            return victim.fail(error)
        ticket.record.finished, ticket.record.finish_reason = now, "rejected"
        self.observer.observe(ticket.record)
        raise error

    def _places(self, ticket: Ticket, now: float) -> int:
        """Of the queue, for all that wait with `ticket`; those of whom the engine has said nothing yet come first."""
        limits = self.limits
        soon = None if limits.max_wait_s is None or ticket.ask.follows else self._drain.within(limits.max_wait_s, now)
        return limits.max_queue if soon is None else min(limits.max_queue, max(1, soon - len(self._silent)))
