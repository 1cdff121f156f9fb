"""Messages between the parent and its workers: frames of msgpack over pipes."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from drut.bench.load.client import Target
from drut.bench.load.record import LoadRecord
from drut.bench.work import Session
from drut.frames import frame, receive_frame

MAX_S = 1e7  # of any time in a run


class MeasureWindow(msgspec.Struct, frozen=True):
    """The phases of a run, in seconds from its start: load from 0 on, measured in [begin, end), wait until end + grace.
    Once all measured requests have ended, requests in flight have `drain` more seconds before they are cut off. If a
    closed loop with `drain` sent no request within the window because its responses take longer, the requests that span
    the window are measured: a window without any would omit the slow ones.

    `endless`: the window has no end of its own. The workload ends it, with the end of its last request."""

    begin: float
    end: float
    grace: float
    drain: float = 0.0
    endless: bool = False

    @classmethod
    def of_workload(cls) -> MeasureWindow:
        """Returns the window of a run that measures every request of a workload, from the first to the last."""
        return cls(0.0, MAX_S, 0.0, endless=True)

    @property
    def length(self) -> float:
        """Returns the length of the measured window in seconds."""
        return self.end - self.begin

    def holds(self, t: float) -> bool:
        """Returns whether a request scheduled at `t` seconds from the start is measured."""
        return self.begin <= t < self.end

    def spanned(self, begun: float, ended: float | None) -> bool:
        """Returns whether a request was in flight from before the window until after it."""
        return begun < self.begin < self.end <= (ended or 0.0)


class WorkerJob(msgspec.Struct, frozen=True, tag=True):
    """The first message to a worker. `stagger` has an entry for each slot of a closed loop: the seconds after which the
    slot begins. None in an open loop."""

    target: Target
    window: MeasureWindow
    stagger: list[float] | None = None


class WorkerStart(msgspec.Struct, frozen=True, tag=True):
    """Time 0 of the run, in seconds of CLOCK_MONOTONIC, which all processes of a machine share."""

    at: float


class ArrivalOffer(msgspec.Struct, frozen=True, tag=True):
    """A session to run; `due` is in seconds from the start, in an open loop only."""

    session: Session
    due: float | None = None


class NoMore(msgspec.Struct, frozen=True, tag=True):
    """The workload has ended."""


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """The worker has a connection to the server."""


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The worker failed, with the reason."""

    why: str


class Beat(msgspec.Struct, frozen=True, tag=True):
    """The records completed since the last beat, and the number of requests in flight."""

    records: list[LoadRecord]
    in_flight: int


class Took(msgspec.Struct, frozen=True, tag=True):
    """A session has begun: there is room for one more."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """The last message of a worker. `cpu` is its CPU use within the window, from 0 to 1; `dry_s` is the first time at
    which a slot had no session, in seconds from the start, None if that never happened."""

    cpu: float
    dry_s: float | None


ToWorker = WorkerJob | WorkerStart | ArrivalOffer | NoMore
FromWorker = WorkerReady | Broken | Beat | Took | Done


class _Writer(Protocol):
    def write(self, data: bytes, /) -> None: ...


_encoder = msgspec.msgpack.Encoder()
_to_worker = msgspec.msgpack.Decoder(ToWorker)
_from_worker = msgspec.msgpack.Decoder(FromWorker)


def put(writer: _Writer, message: ToWorker | FromWorker) -> None:
    """Writes one frame."""
    writer.write(frame(_encoder.encode(message)))


async def to_worker(reader: asyncio.StreamReader) -> ToWorker | None:
    """Reads the next frame; None at the end. Raises OSError if the frame is too long."""
    data = await receive_frame(reader)
    return None if data is None else _to_worker.decode(data)


async def from_worker(reader: asyncio.StreamReader) -> FromWorker | None:
    """Reads the next frame; None at the end. Raises OSError if the frame is too long."""
    data = await receive_frame(reader)
    return None if data is None else _from_worker.decode(data)
