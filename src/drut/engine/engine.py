"""The engine: owns the scheduler, the KV cache and the runner, and computes requests one step at a time.

`Engine.step` is the loop body. Where the parts are: continuous batching, KV block allocation and preemption in
`schedule/scheduler.py`; prefix cache lookup in `schedule/admission.py`; chunked prefill in
`schedule/chunked_prefill.py`; logits processors in `request/logits_processors.py`; grammar masks in
`step/grammar_masks.py`; step replay and sampling behind `step/runner.py`; output processing in `step/accept.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from drut.cache.check import check_cache
from drut.constrain.grammar_compiler import GrammarCompiler
from drut.constrain.reasoning import ReasoningTracker
from drut.engine.request.blocker import Blocked
from drut.engine.request.intake import Intake
from drut.engine.request.params import NEUTRAL, SamplingParams
from drut.engine.request.request import Request
from drut.engine.request.update import Update
from drut.engine.schedule.multi_step import unwind
from drut.engine.schedule.recovery import roll_back, undo_admission
from drut.engine.schedule.scheduler import Scheduler
from drut.engine.schedule.work import ScheduledRequest
from drut.engine.step.accept import Acceptor
from drut.engine.step.inflight import InflightStep
from drut.engine.step.meter import StepMeter
from drut.engine.step.runner import Runner
from drut.engine.step.speculation import Speculation


@dataclass
class StepJournal:
    """Holds the state that `recover` needs if `step` raises: the updates so far, the work that failed, and dependent
    work that
    was already launched (`dropped`)."""

    updates: list[Update] = field(default_factory=list)
    work: Sequence[ScheduledRequest] = ()
    dropped: Sequence[ScheduledRequest] = ()


class Engine:
    """Runs scheduler, cache and runner in one loop. Use from one thread at a time.

    With `overlap` one step is in flight while the host processes the outputs of the step before it.
    """

    def __init__(self, runner: Runner, scheduler: Scheduler, *, vocab: int, context: int, eos_ids: frozenset[int],
                 overlap: bool = False, forced_tokens: bool = True, grammars: GrammarCompiler | None = None,
                 speculation: Speculation | None = None, defaults: SamplingParams = NEUTRAL) -> None:
        """`forced_tokens`: append the tokens that a grammar forces without sampling them; `grammars`: None if no
        constraint can be served; `speculation`: proposes next tokens of requests; `defaults`: the model's sampling
        parameters for fields that a request does not set.
        Raises UnsupportedError for speculation with a model whose state cannot be rewound."""
        self.runner, self.scheduler, self.cache = runner, scheduler, scheduler.cache
        self.vocab, self.context, self.overlap, self.forced_tokens = vocab, context, overlap, forced_tokens
        # A tokenizer may list ids without logits in its model; they must not reach the kernels.
        self.eos_ids = frozenset(i for i in eos_ids if 0 <= i < vocab)
        self.intake = Intake(scheduler.cache, vocab=vocab, context=context, eos_ids=self.eos_ids, grammars=grammars,
                             defaults=defaults)
        self.grammars, self.blocked = grammars, Blocked()
        self.meter = StepMeter(scheduler.pacer.predictor)
        self.speculation = speculation or Speculation(None, vocab=vocab, max_drafts=0)
        self.speculation.check(self.cache.rewinds)
        self._acceptor = Acceptor(scheduler, self.finish, self.speculation)
        self._inflight: InflightStep | None = None  # launched, outputs not all processed
        self._journal = StepJournal()

    @property
    def room(self) -> int:
        """The maximum number of tokens of a prompt and its output together."""
        return self.intake.room

    @property
    def busy(self) -> bool:
        """True if `step` has something to do."""
        return bool(self.scheduler.running or self.scheduler.waiting or self._inflight)

    @property
    def preemptions(self) -> int:
        """The number of preemptions since the start."""
        return sum(self.scheduler.preemptions.values())

    def submit(self, tokens: Sequence[int], params: SamplingParams, *, request_id: str = "", priority: int = 0,
               salt: str = "", reasoning: ReasoningTracker | None = None) -> list[Request]:
        """Adds a prompt to the request queue. Returns one request per choice (`Intake.requests`)."""
        requests = self.intake.requests(tokens, params, name=request_id, priority=priority, salt=salt,
                                         reasoning=reasoning)
        self._queue(requests)
        return requests

    def submit_logits(self, tokens: Sequence[int], chunk: int) -> Request:
        """Queues a prompt to compute its logits at every position, at most `chunk` rows per step."""
        request = self.intake.logits_request(tokens, chunk)
        self._queue([request])
        return request

    def _queue(self, requests: Sequence[Request]) -> None:
        self.blocked.add(requests)
        self.speculation.begin(requests)
        for request in requests:
            self.scheduler.add(request)
        self._stop_burst()

    def _stop_burst(self) -> None:
        """Ends a burst in flight after its current step: the set of requests has changed."""
        if self._inflight is not None:
            self._inflight.stop()

    def abort(self, request: Request) -> None:
        """Aborts a request in any state. Does nothing if it has ended."""
        self.finish(request, "abort")

    def finish(self, request: Request, reason: str) -> None:
        """Ends a request with a finish reason, such as a stop string. Does nothing if it has ended.

        Its pages are released at once. A step in flight may still write to them, which is safe: steps run in order, so
        a new owner of a page writes later. The outputs of that step for this request are dropped."""
        if request.finish_reason is None:
            request.finish_reason = reason
            request.finished_at = time.monotonic()
            self.scheduler.finish(request)
            self._stop_burst()
            self.speculation.forget(request)

    def step(self) -> list[Update]:
        """Computes one step and returns its updates: new tokens, scores and ends of requests.

        In order:
        1. Resolve blockers, such as grammars that were compiled, and append tokens that grammars force.
        2. Schedule: `Scheduler.schedule` chooses the rows of the next step.
        3. Launch the step. The runner fills the step descriptor and replays the recorded plan.
        4. Process outputs: confirm rows, append the sampled tokens, end requests.

        Without overlap, phase 4 waits for the step that phase 3 launched. With overlap, phase 3 leaves the new step N
        in flight and phase 4 processes step N-1, so the host works while step N runs. When step N is scheduled, the
        tokens of step N-1 are not known yet: they count as in flight, and a row of step N that needs one takes it from
        its relay slot.

        If a request drafts, the step in flight is processed first, since its tokens are needed.

        A burst in flight is several decode steps in one launch. A call returns the updates of the burst's steps so far,
        and schedules again only when the number of its remaining steps is known. If a call raises, use `recover`."""
        self._journal = journal = StepJournal()
        if self._inflight is not None and self._inflight.burst is not None:
            self._inflight.wait()
            self._process(self._inflight)
            if self._inflight is not None and self._inflight.length_unknown:
                return journal.updates
        if (flight := self._inflight) is not None and self.speculation.waits(self.scheduler.running):
            flight.settle()
            self.speculation.host_begins()
            while not flight.complete:
                flight.wait()
                self._process(flight)
        journal.work = ()  # from here on until the launch, no work is to blame for an error
        for request in self.blocked.resolve():
            self.finish(request, "error")
            journal.updates.append(Update(request, None))
        if self.forced_tokens:
            self._acceptor.force(list(self.scheduler.running), journal.updates)
        journal.work = work = self.scheduler.schedule(self.speculation.drafts(self.scheduler.running, self._inflight))
        launched = self.runner.launch(work) if work else None
        self.speculation.host_ends()
        if launched is None and self._inflight is None:
            self.blocked.wait()
        due = launched  # the step whose outputs are processed now
        if self.overlap:
            due, self._inflight = self._inflight, launched
        try:
            while due and not due.complete:
                due.wait()
                self._process(due)
            return journal.updates
        except BaseException:
            if self._inflight is not None:  # it was launched on top of the failed step: its outputs are invalid
                self._inflight.stop()
                self._inflight.settle()
                journal.dropped = self._inflight.work
                self._inflight = None
            raise

    def recover(self) -> tuple[list[Update], list[Request]]:
        """Repairs the engine after `step` has raised: ends the requests of the failed step with "error", and rolls back
        the work that was launched on top of it.

        Returns the updates from before the failure, and the requests that were ended; all others continue. If no step
        was running, scheduling failed: then all running requests end, or the first waiting one if none runs. Raises
        KvCorruptionError if the pages no longer add up.
        """
        self.meter.failed += 1
        journal, self._journal = self._journal, StepJournal()
        lost = [w.request for w in journal.work]
        if not lost:
            undo_admission(self.scheduler)
            lost = list(self.scheduler.running) or self.scheduler.waiting[:1]
        for request in lost:
            self.finish(request, "error")
        for work in journal.dropped:
            roll_back(self.scheduler, work)
        self.check_idle()
        return journal.updates, lost

    def _process(self, flight: InflightStep) -> None:
        """Processes the outputs of an in-flight step that are new. After its last output, measures and releases it."""
        self._journal.work = flight.work  # to blame if this raises
        try:
            for out in flight.outputs():
                self._acceptor.process(flight.work, out, flight.read - 1, flight.logits, self._journal.updates)
                if self.speculation.look([w.request for w in flight.work], self.scheduler.running):
                    self._stop_burst()
        except BaseException:
            if flight is self._inflight:
                self._inflight = None
            raise
        if flight.complete:
            self.speculation.observe(flight)
            self.meter.add(flight.work, flight.read, flight.seconds)
            if flight.planned > flight.read:
                for work in flight.work:
                    unwind(work, flight.planned - flight.read)
            flight.release()  # last: a later step may now overwrite the outputs
            if flight is self._inflight:
                self._inflight = None

    def drain(self) -> None:
        """Waits for the step in flight. Its outputs for requests that have ended are dropped."""
        while self._inflight:
            self.step()

    def check_idle(self) -> None:
        """Recounts all pages and raises KvCorruptionError on a mismatch. When nothing runs, free + cached = total."""
        check_cache(self.cache, [r.table for r in (*self.scheduler.running, *self.scheduler.waiting)])

    def close(self) -> None:
        """Aborts all requests and ends the threads of runner and grammar compiler."""
        for request in (*self.scheduler.running, *self.scheduler.waiting):
            self.abort(request)
        self.runner.close()
        if self.grammars is not None:
            self.grammars.close()

