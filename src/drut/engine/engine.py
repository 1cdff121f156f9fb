"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drut.cache.check import check_cache
from drut.constrain.compiler import Grammars
from drut.constrain.thought import ThoughtWatch
from drut.engine.accept import Acceptor
from drut.engine.ahead import unwind
from drut.engine.blocker import Blocked
from drut.engine.flight import Flight
from drut.engine.intake import Intake
from drut.engine.meter import StepMeter
from drut.engine.params import SamplingParams
from drut.engine.recovery import break_off, take_back
from drut.engine.request import Request
from drut.engine.runner import Runner
from drut.engine.scheduler import Scheduler
from drut.engine.update import Update
from drut.engine.work import Work
from drut.errors import UnsupportedError
from drut.observe.ledger import Peaks
from drut.speculate import Anchor, Drafter


@dataclass
class StepJournal:
    """What `recover` needs if `step` raises: updates so far, the failing work, and work launched on top of that."""

    updates: list[Update] = field(default_factory=list)
    work: Sequence[Work] = ()
    dropped: Sequence[Work] = ()


class Engine:
    """Scheduler, cache and runner in one loop. Use from one thread at a time.

    With `overlap` a step is scheduled, and the one before it processed, while another runs.
    """

    def __init__(self, runner: Runner, scheduler: Scheduler, *, vocab: int, context: int, eos_ids: frozenset[int],
                 overlap: bool = False, forced_tokens: bool = True, grammars: Grammars | None = None,
                 drafter: Drafter | None = None) -> None:
        """`forced_tokens`: whether those are taken at once; `grammars`: None if no constraint can be served; `drafter`
        guesses tokens of requests without constraint, reasoning and penalties."""
        self.runner, self.scheduler, self.cache = runner, scheduler, scheduler.cache
        self.vocab, self.context, self.overlap, self.forced_tokens = vocab, context, overlap, forced_tokens
        # A tokenizer may name ids its model has no logits for; the kernels must not meet them.
        self.eos_ids = frozenset(i for i in eos_ids if 0 <= i < vocab)
        self._intake = Intake(scheduler.cache, vocab=vocab, context=context, eos_ids=self.eos_ids, grammars=grammars,
                              speculates=drafter is not None)
        self.grammars, self.blocked = grammars, Blocked()
        if drafter is not None and not self.cache.rewinds:
            raise UnsupportedError("a model whose state cannot go back has no drafter")
        self.meter = StepMeter(scheduler.pacer.predictor)
        self.drafter = drafter
        self._acceptor = Acceptor(scheduler, self.finish, drafter)
        self._flight: Flight | None = None
        self._journal = StepJournal()

    @property
    def room(self) -> int:
        """Tokens that a prompt and its output may have together."""
        return self._intake.room

    @property
    def busy(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting or self._flight)

    @property
    def preemptions(self) -> int:
        """How often a running request was put back to waiting."""
        return sum(self.scheduler.preemptions.values())

    def submit(self, tokens: Sequence[int], params: SamplingParams, *, request_id: str = "", priority: int = 0,
               salt: str = "", reasoning: ThoughtWatch | None = None) -> list[Request]:
        """Queues a prompt, one request a choice (`Intake.requests`)."""
        requests = self._intake.requests(tokens, params, name=request_id, priority=priority, salt=salt,
                                         reasoning=reasoning)
        self._queue(requests)
        return requests

    def submit_logits(self, tokens: Sequence[int], chunk: int) -> Request:
        """Queues a prompt whose logits are wanted at every position, `chunk` rows of it in a step at most."""
        request = self._intake.logits_request(tokens, chunk)
        self._queue([request])
        return request

    def _queue(self, requests: Sequence[Request]) -> None:
        self.blocked.add(requests)
        for request in requests:
            self.scheduler.add(request)
        self._stop_burst()

    def _stop_burst(self) -> None:
        """What runs must not go on as if nothing had changed."""
        if self._flight is not None:
            self._flight.stop()

    def abort(self, request: Request) -> None:
        """Ends a request wherever it is. Does nothing if it has ended."""
        self.finish(request, "abort")

    def finish(self, request: Request, reason: str) -> None:
        """Ends a request for a reason found outside, as a stop string. Does nothing if it has ended."""
        if request.finish_reason is None:
            request.finish_reason = reason
            request.finished_at = time.monotonic()
            self.scheduler.finish(request)
            self._stop_burst()
            if self.drafter is not None and request.speculates:
                self.drafter.forget(request.order)

    def step(self) -> list[Update]:
        """Computes one step and returns what it brought. With `overlap`: launches a step and returns what the one
        before it brought; while a burst runs, what has come since."""
        self._journal = journal = StepJournal()
        if self._flight is not None and self._flight.burst is not None:
            self._flight.wait()
            self._take(self._flight)
            if self._flight is not None and self._flight.open_ended:
                return journal.updates
        journal.work = ()
        for request in self.blocked.resolve():
            self.finish(request, "error")
            journal.updates.append(Update(request, None))
        if self.forced_tokens:
            self._acceptor.force(list(self.scheduler.running), journal.updates)
        journal.work = work = self.scheduler.schedule(self._drafts())
        flight = self.runner.launch(work) if work else None
        if flight is None and self._flight is None:
            self.blocked.wait()
        if self.overlap:
            flight, self._flight = self._flight, flight
        try:
            while flight and not flight.landed:
                flight.wait()
                self._take(flight)
            return journal.updates
        except BaseException:
            if self._flight is not None:  # launched on top of the step that failed, it means nothing
                self._flight.stop()
                self._flight.settle()
                journal.dropped = self._flight.work
                self._flight = None
            raise

    def _drafts(self) -> Mapping[Request, Sequence[int]]:
        """Guesses for the requests that may use some in the next step."""
        if self.drafter is None or not (open_ := [r for r in self.scheduler.running if r.may_draft]):
            return {}
        anchors = [Anchor(r.order, r.tokens, r.limit - r.known - 1) for r in open_]
        return dict(zip(open_, self.drafter.propose(anchors), strict=True))

    def recover(self) -> tuple[list[Update], list[Request]]:
        """After `step` has raised: ends the requests whose step it was, and takes back what was launched on top of it.

        Returns what the step had brought before, and the requests that are lost; the others go on. If no work was
        found to blame, scheduling failed: what ran is lost, or else the first that waits. KvCorruptionError if the
        pages no longer add up.
        """
        self.meter.failed += 1
        journal, self._journal = self._journal, StepJournal()
        lost = [w.request for w in journal.work]
        if not lost:
            break_off(self.scheduler)
            lost = list(self.scheduler.running) or self.scheduler.waiting[:1]
        for request in lost:
            self.finish(request, "error")
        for work in journal.dropped:
            take_back(self.scheduler, work)
        self.check_idle()
        return journal.updates, lost

    def _take(self, flight: Flight) -> None:
        """Takes what has come of a flight since. After its last output its account is closed."""
        self._journal.work = flight.work
        try:
            for out in flight.outputs():
                self._acceptor.process(flight.work, out, flight.read - 1, flight.logits, self._journal.updates)
        except BaseException:
            if flight is self._flight:
                self._flight = None
            raise
        if flight.landed:
            self.meter.add(flight.work, flight.read, flight.seconds)
            if flight.planned > flight.read:
                for work in flight.work:
                    unwind(work, flight.planned - flight.read)
            flight.release()
            if flight is self._flight:
                self._flight = None

    def compare_with(self, peaks: Peaks) -> None:
        """From now on the meter tells the floor of each step beside the time it took."""
        self.meter.compare(peaks)

    def drain(self) -> None:
        """Waits for a step in flight and drops what it brings to requests that have ended."""
        while self._flight:
            self.step()

    def check_idle(self) -> None:
        """Counts all pages anew; when nothing runs, free + cached = total. Raises KvCorruptionError."""
        check_cache(self.cache, [r.table for r in (*self.scheduler.running, *self.scheduler.waiting)])

    def close(self) -> None:
        for request in (*self.scheduler.running, *self.scheduler.waiting):
            self.abort(request)
        self.runner.close()
        if self.grammars is not None:
            self.grammars.close()

