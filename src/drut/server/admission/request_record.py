"""Times and counts of a request: the source of metrics, spans and log lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from drut.engine.request.output import Completion
from drut.engine.request.params import FilledParams

# Why a request ended without an answer: its deadline passed, the server failed to compute it, the request was invalid,
# the queue was full, the server was shut down.
FAILURES = ("deadline", "error", "invalid", "rejected", "shutdown")


@dataclass
class RequestRecord:
    """Times and counts of one request.

    Times are seconds of the monotonic clock, taken when tokens reach the server's event loop; None: not yet.
    """

    id: str
    key: str
    priority: int
    choices: int
    arrived: float
    admitted: float | None = None  # given to the engine
    first_token: float | None = None
    last_token: float | None = None
    finished: float | None = None
    prompt_tokens: int = 0  # exact once a choice has ended
    cached_tokens: int = 0
    completion_tokens: int = 0  # of all choices, as in the reply's usage
    longest: int = 0  # tokens of the longest choice
    finish_reason: str = ""  # "stop", "length", "abort" (the client left), or one of FAILURES
    error: str = ""
    engine_queue_s: float = 0.0  # wait inside the engine
    preemptions: int = 0
    steps: int = 0
    drafted: int = 0  # drafts that were verified
    accepted: int = 0  # of those
    waited_for: str = ""  # the engine's last reason for the wait
    tpots: list[float] = field(default_factory=list)  # seconds, one for each choice with two tokens or more
    finish_reasons: list[str] = field(default_factory=list)  # of the choices, in the order in which they ended
    operation: str = ""  # "chat" or "text_completion"
    params: FilledParams | None = None
    trace: Mapping[str, str] = field(default_factory=dict)  # headers that name the client's span
    ignored: tuple[str, ...] = ()  # paths of fields of the request without effect

    @property
    def ttft_s(self) -> float | None:
        """Time from arrival to the first token of any choice."""
        return None if self.first_token is None else self.first_token - self.arrived

    @property
    def queue_s(self) -> float | None:
        """Time from arrival until the engine first computed rows of it; None if it was never admitted."""
        return None if self.admitted is None else self.admitted - self.arrived + self.engine_queue_s

    @property
    def e2e_s(self) -> float | None:
        """Time from arrival to the end."""
        return None if self.finished is None else self.finished - self.arrived

    @property
    def prefill_s(self) -> float | None:
        """Time from the end of the queue to the first token."""
        if self.ttft_s is None or self.queue_s is None:
            return None
        return max(0.0, self.ttft_s - self.queue_s)

    @property
    def decode_s(self) -> float | None:
        """Time from the first token to the last."""
        if self.first_token is None or self.last_token is None:
            return None
        return self.last_token - self.first_token

    @property
    def inference_s(self) -> float | None:
        """Time from the end of the queue to the last token."""
        return None if self.prefill_s is None or self.decode_s is None else self.prefill_s + self.decode_s

    def complete(self, completion: Completion) -> None:
        """Adds the counts and times of a finished choice."""
        why = completion.why
        self.prompt_tokens = completion.prompt_tokens
        self.finish_reasons.append(completion.finish_reason)
        if completion.index == 0:
            self.finish_reason = completion.finish_reason
            self.cached_tokens = completion.cached_tokens
            self.engine_queue_s = why.queued_s
            self.waited_for = why.waited_for
        self.preemptions += why.preemptions
        self.steps += why.steps
        self.drafted += why.drafted
        self.accepted += why.accepted


class Observer(Protocol):
    """Observes requests while they run. It is called in the event loop, so it must be quick."""

    def first_token(self, record: RequestRecord) -> None: ...
    def generated(self, count: int) -> None:
        """Counts `count` new tokens of one choice."""
        ...

    def gap(self, gap_s: float, count: int) -> None:
        """Counts `count` gaps of `gap_s` seconds between consecutive tokens of one choice."""
        ...

    def observe(self, record: RequestRecord) -> None:
        """Takes the record of a request that has ended or was rejected."""
        ...


class NullObserver:
    """An observer that does nothing."""

    def first_token(self, record: RequestRecord) -> None: ...
    def generated(self, count: int) -> None: ...
    def gap(self, gap_s: float, count: int) -> None: ...
    def observe(self, record: RequestRecord) -> None: ...


class ObserverGroup:
    """Observers that each get every call."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def first_token(self, record: RequestRecord) -> None:
        for observer in self._observers:
            observer.first_token(record)

    def generated(self, count: int) -> None:
        for observer in self._observers:
            observer.generated(count)

    def gap(self, gap_s: float, count: int) -> None:
        for observer in self._observers:
            observer.gap(gap_s, count)

    def observe(self, record: RequestRecord) -> None:
        for observer in self._observers:
            observer.observe(record)
