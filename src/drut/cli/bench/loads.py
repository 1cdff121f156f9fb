"""The loads of a run or a sweep: from --rate, --users and the flags that shape them."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from drut.bench.load.fleet import ClosedLoop, OpenLoop
from drut.bench.load.schedule import ArrivalRate, Schedule
from drut.bench.load.wire import MAX_S, MeasureWindow
from drut.cli.bench.flags import DEFAULT_DURATION_S, DEFAULT_USERS, DEFAULT_WARMUP_S
from drut.errors import RequestError

SEED_STEP = 7919  # distance of the seeds of a sweep: no run repeats prompts that a prefix cache would hold


@dataclass(frozen=True)
class Load:
    """One load: a rate in sessions per second (infinite: all at once), a number of users, or neither, for a trace."""

    rate: float | None
    users: int | None

    @property
    def folder(self) -> str:
        """Returns the name of its folder in that of a sweep."""
        return f"users-{self.users}" if self.rate is None else f"rate-{self.rate:g}"


def loads_of(args: argparse.Namespace) -> list[Load]:
    """Returns the loads, at least one. Raises RequestError for flags that do not fit together."""
    if args.arrivals == "trace":
        _refuse(args, ("rate", "users", "cv", "ramp_to"), "has no effect with --arrivals trace")
        return [Load(None, None)]
    if args.rate is None:
        _refuse(args, ("arrivals", "cv", "ramp_to"), "is for an open loop and requires --rate")
        return [Load(None, users) for users in _users(args.users or str(DEFAULT_USERS))]
    rates = [_rate(part) for part in args.rate.split(",")]
    if len(set(rates)) < len(rates):
        raise RequestError(f"--rate {args.rate} has a rate twice")
    if math.inf in rates:
        _refuse(args, ("arrivals", "cv", "ramp_to"), "has no effect with --rate inf")
        if args.num_requests is None:
            raise RequestError("--rate inf sends all requests at once and requires --num-requests")
    if args.cv is not None and args.arrivals != "gamma":
        raise RequestError("--cv requires --arrivals gamma")
    if args.ramp_to is not None and len(rates) > 1:
        raise RequestError("--ramp-to requires a single --rate")
    if args.ramp_to is not None and args.num_requests is not None:
        raise RequestError("--ramp-to requires --duration")
    return [Load(rate, None) for rate in rates]


def window_of(args: argparse.Namespace) -> MeasureWindow:
    """Returns the measured window. Raises RequestError."""
    if args.num_requests is not None:
        if not 1 <= args.num_requests <= 10**9:
            raise RequestError(f"--num-requests must be from 1 to {10**9}, not {args.num_requests}")
        if args.warmup:
            raise RequestError("--warmup requires --duration; --num-requests measures every request")
        return MeasureWindow.of_workload()
    duration = DEFAULT_DURATION_S if args.duration is None else args.duration
    warmup = DEFAULT_WARMUP_S if args.warmup is None else args.warmup
    for name, value, least in (("duration", duration, 1e-3), ("warmup", warmup, 0.0), ("grace", args.grace, 0.0)):
        if not least <= value < MAX_S:
            raise RequestError(f"--{name} must be a number of seconds from {least:g} on, not {value}")
    return MeasureWindow(warmup, warmup + duration, args.grace)


def loop_of(args: argparse.Namespace, load: Load, window: MeasureWindow, seed: int) -> OpenLoop | ClosedLoop:
    """Returns the loop of one load. Raises RequestError."""
    if load.users is not None:
        return ClosedLoop(load.users)
    if load.rate is None:
        return OpenLoop(None)
    rate = ArrivalRate(load.rate, load.rate if args.ramp_to is None else args.ramp_to, window.begin, window.end)
    return OpenLoop(Schedule(rate, args.arrivals or "poisson", 1.0 if args.cv is None else args.cv, seed))


def _refuse(args: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise RequestError(f"--{name.replace('_', '-')} {why}")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not rate > 0:
        raise RequestError(f"--rate must be a positive number such as 4, several such as 1,2,4, or inf, not {text!r}")
    return rate


def _users(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part[:9]) > 0 and len(part) < 9 for part in parts):
        raise RequestError(f"--users must be at least 1, such as 8 or 1,4,16, not {text!r}")
    users = [int(part) for part in parts]
    if len(set(users)) < len(users):
        raise RequestError(f"--users {text} has a number twice")
    return users
