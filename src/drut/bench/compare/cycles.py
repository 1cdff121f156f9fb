"""The rates of a closed loop by its answers instead of by the clock.

A user of a closed loop asks again when the answer has come. So N answers take a user the sum of their times, and U
users get U * N / sum answers a second (Little's law), wherever the window began and ended. The window's own rates say
the same where it holds many answers. Where it holds two or three, they err by half and more, and to the same side in
every round, since all turns begin alike: of an engine that takes 25 s for an answer, 40 s hold one.
"""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.result.schema import Result
from drut.bench.stats.distribution import Figure


def closed_loop_figures(result: Result, users: int) -> dict[str, Figure]:
    """The rates of `users` who ask one after the other without thinking, of the measured requests, and the cost that
    follows from them. Empty where these do not tell them: a failure, after which a user pauses, a conversation of
    several turns, or no request at all."""
    measured = [request for request in result.requests if request.measured]
    spans = [request.ended_ms for request in measured if request.failure is None and not request.turn]
    seconds = sum(span for span in spans if span is not None) / 1e3
    if len(spans) < len(measured) or None in spans or not seconds:
        return {}
    each = users / seconds
    output = _rate([request.output_tokens for request in measured], each)
    found: dict[str, Figure] = {
        "output_tokens_per_s": output, "input_tokens_per_s": _rate([r.input_tokens for r in measured], each),
        "requests_per_s": each * len(measured)}
    if all(request.good is not None for request in measured):
        found["goodput_per_s"] = each * sum(bool(request.good) for request in measured)
    if result.cost is not None and output:
        found["cost_per_million_output"] = result.cost.per_hour / 3600 / output * 1e6
    return found


def _rate(tokens: Sequence[int | None], each: float) -> float | None:
    known = [n for n in tokens if n is not None]
    return each * sum(known) if len(known) == len(tokens) else None
