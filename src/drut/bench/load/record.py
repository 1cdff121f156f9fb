"""The record of one request."""

from __future__ import annotations

from typing import Literal

import msgspec

Failure = Literal["connect", "timeout", "http", "cut", "malformed", "server", "empty", "unfinished"]
"""connect: no connection; timeout: no complete response in time; http: a status other than 200; cut: the connection
ended inside the response; malformed: the response violates the protocol; server: an error inside a response with status
200; empty: a response without tokens; unfinished: no end before the end of the grace period after the measured window.
docs/bench.md has the rules."""


class LoadRecord(msgspec.Struct):
    """The record of one request. Times are seconds from the start of the run on the client's CLOCK_MONOTONIC; no time
    is taken from the server's clock.

    `arrivals[i]` is the time at which the client had the i-th piece of output, `chars[i]` the length of its text, and
    `reported[i]` the number of its tokens by the server (-1: not reported). Pieces of the same read are one arrival.
    """

    session: str
    turn: int
    scheduled: float
    counted: bool = False  # whether it is measured (see Window)
    sent: float | None = None  # time at which it was passed to the socket
    connect_s: float = 0.0  # the part of `sent - scheduled` that was the wait for a new connection
    ended: float | None = None  # the end of the response, or the time of the failure
    status: int | None = None
    failure: Failure | None = None
    detail: str = ""
    streamed: bool = False
    arrivals: list[float] = []
    chars: list[int] = []
    reported: list[int] = []
    expected_input_tokens: int | None = None  # by the workload
    max_tokens: int = 0
    input_tokens: int | None = None  # by the server, as are the following fields
    output_tokens: int | None = None
    cached_tokens: int | None = None
    queue_s: float | None = None
    finish_reason: str | None = None
    text: str | None = None  # kept if the server did not report the number of tokens

    def count_from(self, start: float) -> None:
        """Makes absolute time stamps relative to `start`. `scheduled` is relative already."""
        self.arrivals = [t - start for t in self.arrivals]
        self.sent = None if self.sent is None else self.sent - start
        self.ended = None if self.ended is None else self.ended - start
