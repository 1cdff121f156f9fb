"""The engine loop: reads messages, runs a step, sends messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from drut.cache.pool import KvCorruptionError
from drut.engine.llm import LLM
from drut.engine.output_processor import OutputProcessor
from drut.engine.request.request import Request
from drut.engine.request.update import Update
from drut.engine.service import stats
from drut.engine.service.messages import Abort, Failed, FromEngine, Inspect, Output, SetRoof, Stop, Submit, ToLoop
from drut.errors import DrutError, RequestError, UnsupportedError
from drut.observe.ledger import Peaks, interpolated

logger = logging.getLogger(__name__)

Receive = Callable[[bool], Iterable[ToLoop]]  # argument: whether to wait for a message
Send = Callable[[list[FromEngine]], None]


class EngineLoop:
    """Runs one LLM until a Stop message. The outputs of a step are sent as one batch of messages.

    If a step raises, the requests in it fail and the others continue. KvCorruptionError ends the engine.
    """

    def __init__(self, llm: LLM, receive: Receive, send: Send) -> None:
        self._llm, self._receive, self._send = llm, receive, send
        self._answers: dict[Request, OutputProcessor] = {}
        self._open: dict[str, list[Request]] = {}

    def run(self) -> None:
        """Runs the loop on the calling thread, which alone uses the LLM. Blocks for messages only if nothing runs."""
        while True:
            out: list[FromEngine] = []
            for message in self._receive(not self._llm.engine.busy):
                if isinstance(message, Stop):
                    return self._send([Failed(i, "the engine was stopped", False) for i in self._open])
                self._take(message, out)
            if self._llm.engine.busy:
                self._step(out)
            if out:
                self._send(out)

    def _take(self, message: Submit | Abort | Inspect | SetRoof, out: list[FromEngine]) -> None:
        if isinstance(message, Inspect):
            return out.append(stats.stats(self._llm.engine))
        if isinstance(message, SetRoof):
            return self._llm.engine.meter.compare(Peaks(partial(interpolated, message.read), message.macs))
        if isinstance(message, Abort):
            for request in self._open.pop(message.id, ()):
                self._answers.pop(request, None)
                self._llm.engine.abort(request)
            return
        if message.id in self._open:
            return out.append(Failed(message.id, f"request id {message.id!r} is in use", True))
        try:
            answers = self._llm.submit(message.prompt, message.params, priority=message.priority, salt=message.salt,
                                       request_id=message.id, lean=message.lean)
        except DrutError as error:
            return out.append(Failed(message.id, str(error), _is_the_requests(error)))
        except Exception as error:  # an error while submitting fails this request only
            return out.append(Failed(message.id, f"{type(error).__name__}: {error}", False))
        self._open[message.id] = [a.request for a in answers]
        self._answers.update((a.request, a) for a in answers)

    def _step(self, out: list[FromEngine]) -> None:
        engine = self._llm.engine
        try:
            self._distribute(engine.step(), out)
        except KvCorruptionError:
            raise
        except Exception as error:
            logger.exception("a step failed")
            updates, lost = engine.recover()
            if not lost:
                raise
            self._fail(lost, f"the step that computed it failed: {type(error).__name__}: {error}", out)
            self._distribute(updates, out)

    def _fail(self, lost: Iterable[Request], reason: str, out: list[FromEngine]) -> None:
        for name in dict.fromkeys(request.id for request in lost if request in self._answers):
            self._take(Abort(name), out)
            out.append(Failed(name, reason, False))

    def _distribute(self, updates: Iterable[Update], out: list[FromEngine]) -> None:
        touched: dict[Request, None] = {}
        for update in updates:
            answer = self._answers.get(update.request)
            if answer is None:
                continue
            touched[update.request] = None
            if answer.push(update):
                self._llm.engine.finish(update.request, "stop")
        for request in touched:
            if request in self._answers:  # a choice that failed has ended its siblings
                self._emit(request, out)

    def _emit(self, request: Request, out: list[FromEngine]) -> None:
        answer, siblings = self._answers[request], self._open[request.id]
        if request.finish_reason is None:
            chunk = answer.take()
            if chunk.text or chunk.token_ids or chunk.prompt_logprobs:
                out.append(Output(request.id, chunk, last=False))
            return
        answer.end()
        try:
            chunk = answer.take()
        except DrutError as error:
            self._take(Abort(request.id), out)
            return out.append(Failed(request.id, str(error), _is_the_requests(error)))
        del self._answers[request]
        siblings.remove(request)
        out.append(Output(request.id, chunk, last=not siblings))
        if not siblings:
            del self._open[request.id]


def _is_the_requests(error: DrutError) -> bool:
    """True if the cause is in the request and not in the engine."""
    return isinstance(error, RequestError | UnsupportedError)
