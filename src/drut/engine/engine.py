"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from concurrent.futures import wait
from typing import NamedTuple

from drut.cache.check import check_cache
from drut.constrain.compiler import Grammars
from drut.constrain.thought import ThoughtWatch
from drut.engine.ahead import unwind
from drut.engine.checks import check_ids, check_prompt
from drut.engine.edits import EditTable
from drut.engine.flight import Flight
from drut.engine.floor import StepFloor
from drut.engine.forced import forced_run
from drut.engine.guides import Guides
from drut.engine.meter import StepMeter
from drut.engine.params import SamplingParams
from drut.engine.recovery import break_off, take_back
from drut.engine.request import Request
from drut.engine.runner import Runner
from drut.engine.scheduler import Scheduler
from drut.engine.work import Work
from drut.errors import RequestError
from drut.kernels.output import Status, StepOutput
from drut.observe.ledger import Peaks

MASK64 = 0xFFFFFFFFFFFFFFFF
NOTHING_ALLOWED = "min_tokens, stop_token_ids, logit_bias and the constraint together leave no token"


class Scored(NamedTuple):
    """A token's place among all: its logprob and rank, and the best ids with theirs, best first."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


class Update(NamedTuple):
    """What a step brought one request: a token or none, scores if asked for, and whether the request ended."""

    request: Request
    token: int | None
    scored: Scored | None = None
    prompt_scored: tuple[Scored, ...] = ()


class Attempt(NamedTuple):
    """What `step` is at: what it has brought so far, the work it would fail with, and work launched on top of that."""

    updates: list[Update]
    work: list[Work]
    dropped: list[Work]


class Engine:
    """Scheduler, cache and runner in one loop. Use from one thread at a time.

    With `overlap` a step is scheduled, and the one before it processed, while another runs.
    """

    def __init__(self, runner: Runner, scheduler: Scheduler, *, vocab: int, context: int, eos_ids: frozenset[int],
                 overlap: bool = False, forced_tokens: bool = True, grammars: Grammars | None = None) -> None:
        """`forced_tokens`: whether those are taken at once; `grammars`: None where no constraint can be served."""
        self.runner, self.scheduler, self.cache = runner, scheduler, scheduler.cache
        self.vocab, self.context, self.overlap, self.forced_tokens = vocab, context, overlap, forced_tokens
        # A tokenizer may name ids its model has no logits for; the kernels must not meet them.
        self.eos_ids = frozenset(i for i in eos_ids if 0 <= i < vocab)
        self.guides = Guides(grammars)
        self.meter = StepMeter()
        self._flight: Flight | None = None
        self._attempt = Attempt([], [], [])
        self._arrivals = 0

    @property
    def room(self) -> int:
        """Tokens that a prompt and its answer may have together: the context, or the KV cache where it holds less."""
        return self.cache.room(self.context)

    @property
    def bound(self) -> str:
        """What `room` is that of."""
        return "context" if self.room == self.context else "KV cache"

    @property
    def busy(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting or self._flight)

    @property
    def preemptions(self) -> int:
        """How often a running request was put back to waiting."""
        return sum(self.scheduler.preemptions.values())

    def submit(self, tokens: Sequence[int], params: SamplingParams, *, request_id: str = "", priority: int = 0,
               salt: str = "", thought: ThoughtWatch | None = None) -> list[Request]:
        """Queues a prompt, one request a choice; `thought` follows `params.thought`, each choice its own twin of it.

        RequestError if the prompt is empty, has an id outside the vocabulary, or can never fit."""
        check_prompt(tokens, self.vocab)
        check_ids("logit_bias", params.logit_bias or (), self.vocab)
        check_ids("stop_token_ids", params.stop_token_ids, self.vocab)
        if (thought is None) != (params.thought is None):
            raise ValueError("a thought and its watch go together")
        check_ids("thought.closing", thought.closing if thought is not None else (), self.vocab)
        if len(tokens) >= self.room:
            raise RequestError(
                f"the prompt has {len(tokens)} tokens; the {self.bound} of {self.room} leaves no room for an answer")
        seed = secrets.randbits(63) if params.seed is None else params.seed & MASK64
        ends = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self.eos_ids)
        requests: list[Request] = []
        for choice in range(params.n):
            self._arrivals += 1
            requests.append(Request(
                request_id or f"r{self._arrivals}", len(tokens), list(tokens), params, seed, choice,
                min(len(tokens) + params.max_tokens, self.room), time.monotonic(), self._arrivals,
                EditTable(params, tokens, (*self.eos_ids, *params.stop_token_ids)), ends, priority,
                requests[0] if requests else None, self.cache.table(salt), thought and thought.twin(),
                self.guides.guide(params, thought)))
        self.guides.add(requests)
        for request in requests:
            self.scheduler.add(request)
        self._stop_burst()
        return requests

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

    def step(self) -> list[Update]:
        """Computes one step and returns what it brought. With `overlap`: launches a step and returns what the one
        before it brought; while a burst runs, what has come since."""
        self._attempt = attempt = Attempt([], [], [])
        if self._flight is not None and self._flight.burst is not None:
            self._flight.wait()
            self._take(self._flight)
            if self._flight is not None and self._flight.open_ended:
                return attempt.updates
        attempt.work[:] = ()
        for request in self.guides.open():
            self.finish(request, "error")
            attempt.updates.append(Update(request, None))
        if self.forced_tokens:
            self._take_forced()
        work = self.scheduler.schedule()
        attempt.work[:] = work
        flight = self.runner.launch(work) if work else None
        if flight is None and self._flight is None:
            self.guides.wait()
        if self.overlap:
            flight, self._flight = self._flight, flight
        try:
            while flight and not flight.landed:
                flight.wait()
                self._take(flight)
            return attempt.updates
        except BaseException:
            if self._flight is not None:  # launched on top of the step that failed, it means nothing
                self._flight.stop()
                wait([self._flight.result])
                attempt.dropped[:] = self._flight.work
                self._flight = None
            raise

    def recover(self) -> tuple[list[Update], list[Request]]:
        """After `step` has raised: ends the requests whose step it was, and takes back what was launched on top of it.

        Returns what the step had brought before, and the requests that are lost; the others go on. Where no work was
        found to blame, scheduling failed: what ran is lost, or else the first that waits. KvCorruptionError where the
        pages no longer add up.
        """
        self.meter.failed += 1
        attempt, self._attempt = self._attempt, Attempt([], [], [])
        lost = [w.request for w in attempt.work]
        if not lost:
            break_off(self.scheduler)
            lost = list(self.scheduler.running) or self.scheduler.waiting[:1]
        for request in lost:
            self.finish(request, "error")
        for work in attempt.dropped:
            take_back(self.scheduler, work)
        check_cache(self.cache, [r.table for r in (*self.scheduler.running, *self.scheduler.waiting)])
        return attempt.updates, lost

    def _take(self, flight: Flight) -> None:
        """Takes what has come of a flight since. Where it was the last, its account is closed."""
        self._attempt.work[:] = flight.work
        try:
            for out in flight.outputs():
                self._process(flight.work, out, flight.read - 1)
        except BaseException:
            if flight is self._flight:
                self._flight = None
            raise
        if flight.landed:
            seconds = flight.result.result()[1]
            self.scheduler.learn(flight.work, seconds)
            self.meter.add(flight.work, flight.read, seconds)
            for work in flight.work:
                unwind(work, flight.planned - flight.read)
            if flight is self._flight:
                self._flight = None

    def _process(self, works: Sequence[Work], out: StepOutput, step: int) -> None:
        """Adds the updates from a step's output; `step`: its number in a burst."""
        now = time.monotonic()
        at = 0
        for work in works:
            request = work.request
            request.inflight -= work.sample
            self.scheduler.confirm(work, step)
            if request.finish_reason is None:
                self._attempt.updates.append(self._read(work, out, at, now))
                self._keep_promises(request, now)
            at += work.scores + work.sample

    def _read(self, work: Work, out: StepOutput, at: int, now: float) -> Update:
        request = work.request
        scores = tuple(_scored(out, i, request.params.prompt_logprobs) for i in range(at, at + work.scores))
        at += work.scores
        if not work.sample:
            return Update(request, None, None, scores)
        if not out.drawn[at]:
            if out.status[at] == Status.NONE_LEFT:
                request.failure = RequestError(NOTHING_ALLOWED)
            self.finish(request, "error")
            return Update(request, None, None, scores)
        token = int(out.tokens[at])
        scored = _scored(out, at, request.params.logprobs) if request.params.logprobs is not None else None
        self._accept(request, token, now)
        return Update(request, token, scored, scores)

    def _keep_promises(self, request: Request, now: float) -> None:
        """Its next tokens were known before the one that has just come."""
        while request.finish_reason is None and (token := request.next_promised()) is not None:
            request.inflight -= 1
            self._accept(request, token, now)
            self._attempt.updates.append(Update(request, token))

    def _take_forced(self) -> None:
        """What is forced need not be drawn: it is taken at once, or behind what is on its way."""
        now = time.monotonic()
        for request in list(self.scheduler.running):
            if run := forced_run(request):
                waits = request.inflight > 0
                request.promise(run)
                if not waits:
                    self._keep_promises(request, now)

    def _accept(self, request: Request, token: int, now: float) -> None:
        request.tokens.append(token)
        request.edits.push(token)
        if request.thought is not None:
            request.thought.push(token)
        if request.first_token_at is None:
            request.first_token_at = now
        if token in request.ends and len(request.output) >= request.params.min_tokens:
            self.finish(request, "stop")
        elif request.guide is not None and request.guide.failure is not None:
            request.failure = request.guide.failure
            self.finish(request, "error")
        elif request.guide is not None and request.guide.ended_by(len(request.output)):
            self.finish(request, "stop")
        elif len(request.tokens) >= request.limit:
            self.finish(request, "length")

    def compare_with(self, peaks: Peaks) -> None:
        """From now on the meter tells the floor of each step beside the time it took."""
        self.meter.compare(StepFloor(self.runner.plan.ops, peaks))

    def drain(self) -> None:
        """Waits for a step in flight and drops what it brings to requests that have ended."""
        while self._flight:
            self.step()

    def check_idle(self) -> None:
        """The idle invariant: nothing runs, and free + cached = total. Raises KvCorruptionError."""
        check_cache(self.cache, [r.table for r in (*self.scheduler.running, *self.scheduler.waiting)])

    def close(self) -> None:
        for request in (*self.scheduler.running, *self.scheduler.waiting):
            self.abort(request)
        self.runner.close()
        self.guides.close()


def _scored(out: StepOutput, i: int, top: int | None) -> Scored:
    n = top or 0
    best = zip(out.top_ids[i, :n].tolist(), out.top_logprobs[i, :n].tolist(), strict=True)
    return Scored(int(out.tokens[i]), float(out.logprobs[i]), int(out.ranks[i]), tuple(b for b in best if b[0] >= 0))
