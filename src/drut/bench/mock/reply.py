"""The plan of one response: its number of tokens, their due times, and its fault."""

from __future__ import annotations

from typing import NamedTuple

from drut.bench.mock.ask import MockAsk
from drut.bench.mock.script import Fault, Script
from drut.bench.mock.times import Chance, chance, token_times


class Reply(NamedTuple):
    """The plan of one response. Times are seconds from the start of service."""

    request: int  # its number, from 0
    tokens: int
    cached_tokens: int
    finish_reason: str
    times: list[float]
    fault: Fault | None

    @property
    def sent_tokens(self) -> int:
        """Returns the number of tokens sent before the fault, or all."""
        return self.tokens if self.fault is None else min(self.fault.after_tokens, self.tokens)

    @property
    def service_s(self) -> float:
        """Returns how long the request holds its slot."""
        return self.times[min(self.sent_tokens, self.tokens - 1)]


def plan_reply(script: Script, ask: MockAsk, request: int) -> Reply:
    """Plans a response; the same for the same script, request and number."""
    random = chance(script.seed, request)
    fault = _fault(script.faults, request, random)
    tokens = ask.max_tokens
    if script.output_tokens is not None and not ask.ignore_eos:
        lengths = [script.output_tokens] if isinstance(script.output_tokens, int) else script.output_tokens
        tokens = min(tokens, lengths[request % len(lengths)])
    cached = int((script.cached_share or 0.0) * ask.prompt_tokens)
    reason = "length" if tokens == ask.max_tokens else "stop"
    if ask.chat and script.stream.tool_call:
        reason = "tool_calls"
    times = token_times(script, request, tokens, ask.prompt_tokens - cached, random)
    return Reply(request=request, tokens=tokens, cached_tokens=cached, finish_reason=reason, times=times, fault=fault)


def _fault(faults: list[Fault], request: int, random: Chance) -> Fault | None:
    """Returns the first fault that applies. Each random fault draws a number whether it applies or not, so that later
    draws do not depend on it."""
    struck = None
    for fault in faults:
        hit = (request + 1) % fault.every == 0 if fault.every else random().random() < (fault.probability or 0.0)
        if hit and struck is None:
            struck = fault
    return struck
