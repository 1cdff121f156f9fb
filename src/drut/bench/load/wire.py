"""What the parent and its workers say to each other: frames of msgpack over pipes."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from drut.bench.load.client import Target
from drut.bench.load.record import Record
from drut.bench.work import Session
from drut.frames import frame, receive_frame


class Window(msgspec.Struct, frozen=True):
    """Seconds from the start of the run: load from 0 on, measured in [begin, end), waited for until end + grace. Once
    all that is measured is over, what is still in flight is waited for as long as `drain`, and then cut off. Where a
    closed loop with `drain` sent nothing within the window, since its answers outlast it, those that span the window
    are measured: a window without any would leave out the slow ones."""

    begin: float
    end: float
    grace: float
    drain: float = 0.0

    @property
    def length(self) -> float:
        """Seconds that are measured."""
        return self.end - self.begin

    def holds(self, t: float) -> bool:
        """Whether a request scheduled at `t` seconds from the start is measured."""
        return self.begin <= t < self.end

    def spanned(self, begun: float, ended: float | None) -> bool:
        """Whether a request was under way from before the window until after it."""
        return begun < self.begin < self.end <= (ended or 0.0)


class Job(msgspec.Struct, frozen=True, tag=True):
    """The first words to a worker. `stagger` has an entry for each of its slots of a closed loop: the seconds after
    which the slot begins. None in an open loop."""

    target: Target
    window: Window
    stagger: list[float] | None = None


class Start(msgspec.Struct, frozen=True, tag=True):
    """Time 0 of the run, in seconds of CLOCK_MONOTONIC, which all processes of a machine share."""

    at: float


class Offer(msgspec.Struct, frozen=True, tag=True):
    """A session to be run; `due` in seconds from the start, in an open loop."""

    session: Session
    due: float | None = None


class NoMore(msgspec.Struct, frozen=True, tag=True):
    """The workload is at its end."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker has a connection to the server."""


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot go on, and why."""

    why: str


class Beat(msgspec.Struct, frozen=True, tag=True):
    """What came to an end since the last beat, and what goes on now. `pieces` are arrivals with output in them."""

    records: list[Record]
    in_flight: int
    pieces: int


class Took(msgspec.Struct, frozen=True, tag=True):
    """A session was begun: there is room for one more."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """The last words of a worker. `cpu` is its use of a CPU, from 0 to 1, as long as it ran in the window; `dry_s` when
    a slot first had to go without a session, seconds from the start, None where none had to."""

    cpu: float
    dry_s: float | None


ToWorker = Job | Start | Offer | NoMore
FromWorker = Ready | Broken | Beat | Took | Done


class _Writer(Protocol):
    def write(self, data: bytes, /) -> None: ...


_encoder = msgspec.msgpack.Encoder()
_to_worker = msgspec.msgpack.Decoder(ToWorker)
_from_worker = msgspec.msgpack.Decoder(FromWorker)


def put(writer: _Writer, message: ToWorker | FromWorker) -> None:
    """Writes one frame."""
    writer.write(frame(_encoder.encode(message)))


async def to_worker(reader: asyncio.StreamReader) -> ToWorker | None:
    """The next frame, None at the end. Raises OSError for one that is too long."""
    data = await receive_frame(reader)
    return None if data is None else _to_worker.decode(data)


async def from_worker(reader: asyncio.StreamReader) -> FromWorker | None:
    """The next frame, None at the end. Raises OSError for one that is too long."""
    data = await receive_frame(reader)
    return None if data is None else _from_worker.decode(data)
