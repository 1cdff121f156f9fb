"""The rates of a closed loop, from its responses instead of the clock.

A user of a closed loop sends the next request when the response has arrived. So N responses take one user the sum of
their times, and U users get U * N / sum responses a second (Little's law), wherever the window begins and ends. The
window's own rates are the same if it contains many responses. If it contains two or three, they are wrong by half or
more, and in the same direction in every round, because all turns begin alike: if an engine takes 25 s for a response,
40 s contain one.
"""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.result.schema import Result
from drut.bench.stats.distribution import Figure


def closed_loop_figures(result: Result, users: int) -> dict[str, Figure]:
    """Returns the rates of `users` who send one request after the other without think time, from the measured requests,
    and the resulting cost. Empty if they cannot be computed: after a failure, after which a user pauses, with
    conversations of several turns, or without requests."""
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
