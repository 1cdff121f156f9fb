"""Speculation: asks a drafter for the next tokens of running requests, and chooses which of them a step verifies."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral

from drut.engine.request.request import Request
from drut.engine.step.inflight import InflightStep
from drut.errors import UnsupportedError
from drut.kernels.descriptor import Edits
from drut.speculate import Drafter, DraftInput, VerifiedDrafts
from drut.speculate.acceptance import DraftLog
from drut.speculate.controller import Proposal, SpeculationController
from drut.speculate.drafter import DraftSampling, ModelDrafter, TapDrafter

logger = logging.getLogger(__name__)
MAX_GAP = 16  # maximum tokens between two looks for drafts of a request that had none
PROBED = 2  # drafts of a model in a probe
FIRST_PROBE, LAST_PROBE = 16, 256  # tokens from one probe to the next


@dataclass
class DraftCounts:
    """The verifications of a method: their number, their drafts, and the accepted drafts by position."""

    verifications: int = 0
    drafted: int = 0
    accepted: list[int] = field(default_factory=list)

    def add(self, drafted: int, accepted: int) -> None:
        self.verifications += 1
        self.drafted += drafted
        self.accepted += [0] * (drafted - len(self.accepted))
        for i in range(accepted):
            self.accepted[i] += 1


@dataclass
class NextLook:
    """When to look for drafts of a request that does not draft: once it has `at` tokens."""

    at: int = 0
    gap: int = 1  # tokens between the last two looks
    probes: bool = False  # drafts of a model are made then, though they are not expected to pay


class Speculation:
    """Owns the drafter and the controller of an engine. For the engine's thread only.

    A request that drafts waits for its last token before each step, and the steps of all others with it: without
    overlap and bursts. So with a controller a request drafts only while that is expected to pay. Otherwise its drafts
    are compared with the tokens that come, which costs no step, until they have become good enough.
    """

    def __init__(self, drafter: Drafter | None, *, vocab: int, max_drafts: int,
                 controller: SpeculationController | None = None) -> None:
        """`drafter`: None for no speculation; `controller`: None to verify all drafts."""
        self._drafter, self._vocab, self._max_drafts, self._controller = drafter, vocab, max_drafts, controller
        self._log, self._looks = DraftLog(), dict[int, NextLook]()
        self._waiting_since: float | None = None
        self.counts: dict[str, DraftCounts] = {}  # by method

    @property
    def drafter(self) -> Drafter | None:
        return self._drafter

    @property
    def runs_steps(self) -> bool:
        """True if the drafter runs steps of a model, which it cannot while a step is in flight."""
        return isinstance(self._drafter, ModelDrafter)

    def check(self, rewinds: bool) -> None:
        """Raises UnsupportedError if there is a drafter and the model's state cannot be rewound behind a draft that was
        not accepted."""
        if self._drafter is not None and not rewinds:
            raise UnsupportedError("speculate: the state of this model cannot be rewound; use none")

    def use(self, drafter: Drafter | None, max_drafts: int, controller: SpeculationController | None = None,
            ) -> tuple[Drafter | None, int, SpeculationController | None]:
        """Replaces drafter, maximum and controller, and returns those before. Call while no request runs."""
        before = self._drafter, self._max_drafts, self._controller
        self._drafter, self._max_drafts, self._controller = drafter, max_drafts, controller
        return before

    def begin(self, requests: Iterable[Request]) -> None:
        """Takes new requests."""
        for request in requests:
            request.speculates = self._drafter is not None and request.params.speculation
            request.drafting = request.speculates and (self._controller is None or self.runs_steps)

    def drafts(self, running: Sequence[Request], inflight: object = None) -> Mapping[Request, Sequence[int]]:
        """Returns the drafts that the next step should verify. `inflight`: the step in flight, if there is one."""
        ready = [r for r in running if r.may_draft]
        if not ready:
            return {}
        if isinstance(self._drafter, ModelDrafter):
            return self._model_drafts(self._drafter, ready, running) if inflight is None else {}
        found = self._propose(ready)
        if self._drafter is None:
            self._failed(running)
        if self._controller is None:
            return found
        lengths = self._lengths(found, running)
        for request, drafts in found.items():
            self._log.add(request.order, len(request.tokens), drafts)
            if not lengths[request]:
                self._rest(request)
        return {r: drafts[: lengths[r]] for r, drafts in found.items() if lengths[r]}

    def _model_drafts(self, drafter: ModelDrafter, ready: Sequence[Request],
                      running: Sequence[Request]) -> Mapping[Request, Sequence[int]]:
        """Returns drafts that cost the time of a model: so their number is chosen before they are made."""
        streams = sum(r.decoding for r in running)
        count = self._max_drafts
        if self._controller is not None:
            context = sum(len(r.tokens) for r in ready) // len(ready)
            count = self._controller.drafts_worth(
                [r.order for r in ready], streams, context, lambda k: drafter.seconds(k, len(ready), context))
        due = [r for r in ready if count or self._look(r).probes]
        for request in ready:
            if count:
                self._looks[request.order] = NextLook()
            else:
                self._wait_for_probe(request)
        if not due:
            return {}
        drafter.pace(streams)
        found = self._propose(due, count or PROBED)
        if self._drafter is None:
            self._failed(running)
        for request, drafts in found.items():
            self._log.add(request.order, len(request.tokens), drafts)
        return found

    @staticmethod
    def _failed(running: Sequence[Request]) -> None:
        """Has all requests decode without drafts after the drafter has failed."""
        for request in running:
            request.drafting = False

    def _wait_for_probe(self, request: Request) -> None:
        """Has a request decode without drafts of a model, and then probe whether they pay by now."""
        look = self._look(request)
        request.drafting, look.probes = False, True
        look.gap = min(max(2 * look.gap, FIRST_PROBE), LAST_PROBE)
        look.at = len(request.tokens) + look.gap

    def look(self, requests: Sequence[Request], running: Sequence[Request]) -> bool:
        """Looks for drafts of `requests` that got tokens and do not draft. Returns True if one begins to draft: a burst
        must end."""
        if self._controller is None or self._drafter is None:
            return False
        due = []
        for request in requests:
            if request.finish_reason is None and request.speculates:
                if outcome := self._log.settle(request.order, request.tokens):
                    self._controller.observe(request.order, *outcome)
                if not request.drafting and request.decoding and self._look(request).at <= len(request.tokens):
                    due.append(request)
        if self.runs_steps:
            for request in due:
                request.drafting = True
            return bool(due)
        found = self._propose(due) if due else {}
        lengths = self._lengths(found, running) if any(found.values()) else {}
        for request, drafts in found.items():
            self._log.add(request.order, len(request.tokens), drafts)
            if lengths.get(request):
                request.drafting = True
                continue
            look = self._look(request)
            look.gap = min(2 * look.gap, MAX_GAP)
            look.at = len(request.tokens) + look.gap
        return any(lengths.values())

    def waits(self, running: Iterable[Request]) -> bool:
        """Returns True if a request needs the tokens in flight before it can draft."""
        return self._drafter is not None and any(r.drafting and r.waits_for_token for r in running)

    def host_begins(self) -> None:
        """Notes that a step has ended before the next one was scheduled: from now on the kernels wait for the host."""
        self._waiting_since = time.perf_counter()

    def host_ends(self) -> None:
        """Notes that the next step was launched, or that there is none yet."""
        if self._waiting_since is not None and self._controller is not None:
            self._controller.paused(time.perf_counter() - self._waiting_since)
        self._waiting_since = None

    def count(self, request: Request, drafted: int, accepted: int) -> None:
        """Counts a verification of a request that has not ended before."""
        if self._drafter is not None:
            self.counts.setdefault(self._drafter.method(request.order), DraftCounts()).add(drafted, accepted)

    def observe(self, flight: InflightStep) -> None:
        """Gives the drafter the taps of a finished step, or of the last one of a burst. Call after its outputs were
        processed."""
        taps = flight.ran.taps
        if taps is None or not isinstance(self._drafter, TapDrafter):
            return
        at = 0
        for work in flight.work:
            request, start = work.request, work.start + flight.read - 1
            count = min(work.rows, request.progress.done - start)  # without rejected drafts
            current = request.finish_reason is None and work.epoch == request.progress.epoch
            if request.speculates and current and count > 0:
                self._drafter.observe(request.order, work.epoch, start, taps[at : at + count])
            at += work.rows

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        """Reports verifications to the drafter, of requests that continue."""
        if self._drafter is not None:
            self._drafter.commit(verified)

    def forget(self, request: Request) -> None:
        """Drops the state of a request that has ended."""
        self._log.forget(request.order)
        self._looks.pop(request.order, None)
        if self._controller is not None:
            self._controller.forget(request.order)
        if self._drafter is not None and request.speculates:
            self._drafter.forget(request.order)

    def _look(self, request: Request) -> NextLook:
        return self._looks.setdefault(request.order, NextLook())

    def _rest(self, request: Request) -> None:
        """Has a request decode without drafts, and looks for others after its next token."""
        request.drafting = False
        self._looks[request.order] = NextLook(len(request.tokens) + 1)

    def _lengths(self, found: Mapping[Request, Sequence[int]], running: Sequence[Request]) -> dict[Request, int]:
        assert self._controller is not None
        streams = [r for r in running if r.decoding]
        context = sum(len(r.tokens) for r in streams) // max(len(streams), 1)
        lengths = self._controller.lengths([Proposal(r.order, len(d)) for r, d in found.items()],
                                           max(len(streams), 1), context)
        return dict(zip(found, lengths, strict=True))

    def _propose(self, requests: Sequence[Request], most: int | None = None) -> dict[Request, Sequence[int]]:
        """Returns drafts that can be verified, at most `most` of each request. A drafter that raises, or whose answer
        is malformed, is not asked again: its requests decode without drafts."""
        most = self._max_drafts if most is None else min(most, self._max_drafts)
        inputs = [DraftInput(r.order, r.tokens, max(0, min(most, r.limit - r.known - 1)), r.prompt_tokens,
                             salt=r.table.salt, table=r.table, epoch=r.progress.epoch,
                             sampling=_sampling(r) if self.runs_steps else None) for r in requests]
        try:
            made = self._drafter.propose(inputs) if self._drafter is not None else [()] * len(inputs)
            return {r: self._checked(r, drafts[: given.max_drafts])
                    for r, given, drafts in zip(requests, inputs, made, strict=True)}
        except Exception:
            logger.exception("speculation is off from now on: the drafter failed")
            self._drafter = None
            return dict.fromkeys(requests, ())

    def _checked(self, request: Request, drafts: Sequence[int]) -> Sequence[int]:
        """Cuts drafts in front of an id that is not in the vocabulary, or that the grammar cannot accept."""
        kept = drafts
        for i, draft in enumerate(drafts):
            if not isinstance(draft, Integral) or not 0 <= draft < self._vocab:
                kept = drafts[:i]
                break
        guide = request.guide
        # While its tokens are in flight, the thread of the step uses the matcher.
        if guide is not None and not request.progress.inflight and guide.taken == request.num_output_tokens:
            kept = kept[: guide.may_accept(kept)]
        return kept


def _sampling(request: Request) -> DraftSampling:
    """Returns how the next tokens of a request are sampled."""
    def edits(drafts: Sequence[int]) -> Edits | None:
        return request.edits.along(request.num_output_tokens, drafts)[-1]

    params = request.params if request.params.logprobs is None else replace(request.params, logprobs=None)
    return DraftSampling(params, request.seed, request.choice, edits)
