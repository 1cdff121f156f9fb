"""What is known of one request when it is over."""

from __future__ import annotations

from typing import Literal

import msgspec

Failure = Literal["connect", "timeout", "http", "cut", "malformed", "server", "empty", "unfinished"]
"""connect: no connection; timeout: no whole answer in time; http: a status other than 200; cut: the connection ended
inside the answer; malformed: not the protocol; server: an error inside a 200; empty: the answer ended and had no token;
unfinished: not over when the grace after the measured window was. docs/bench.md has the rules."""


class Record(msgspec.Struct):
    """Times are seconds from the start of the run, of CLOCK_MONOTONIC; the server's own clock is in none of them.

    `arrivals[i]` is when the i-th piece of the answer with output in it was in the client's hands, `chars[i]` how much
    text it had, and `told[i]` how many tokens the server said it had (-1: it did not say). Pieces that came with one
    read are one arrival.
    """

    session: str
    turn: int
    scheduled: float
    counted: bool = False  # measured (see Window)
    sent: float | None = None  # handed to the socket
    connect_s: float = 0.0  # of `sent - scheduled`, the wait for a new connection
    ended: float | None = None  # the end of the response, or when it failed
    status: int | None = None
    failure: Failure | None = None
    detail: str = ""
    streamed: bool = False
    arrivals: list[float] = []
    chars: list[int] = []
    told: list[int] = []
    expected_input_tokens: int | None = None  # as the workload says
    max_tokens: int = 0
    input_tokens: int | None = None  # as the server says, as is all that follows
    output_tokens: int | None = None
    cached_tokens: int | None = None
    queue_s: float | None = None
    finish_reason: str | None = None
    text: str | None = None  # kept where the server did not say how many tokens it is

    def count_from(self, start: float) -> None:
        """Makes what was stamped by the clock count from `start`. `scheduled` does so from the beginning."""
        self.arrivals = [t - start for t in self.arrivals]
        self.sent = None if self.sent is None else self.sent - start
        self.ended = None if self.ended is None else self.ended - start
