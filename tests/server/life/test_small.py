"""Start-up laps, log lines, and a watchdog that does not bite who merely slept."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from drut.engine.request.params import FilledParams
from drut.engine.service.async_engine import AsyncEngine
from drut.engine.service.messages import EngineReady
from drut.server.admission import AdmissionControl, AdmissionLimits, QueuedRequest, QueueFullError, RequestRecord
from drut.server.life import Health, Lifecycle, RequestLog, Startup
from drut.server.life.startup import process_age_s
from drut.server.life.watchdog import Watchdog
from tests.engine.models import write_bytes_model
from tests.server.reading import Reading
from tests.server.virtual import FakeEngine, run


def test_the_parts_of_a_start_add_up_to_its_wall_time() -> None:
    before = time.monotonic() - process_age_s()
    startup = Startup()
    time.sleep(0.05)
    startup.engine(EngineReady(load_s=0.03, numerics_id="", description="", room=1, max_seqs=1, step_tokens=1,
                               parts={"weights": 0.02, "kv pages": 0.01}))
    startup.lap("listening")
    parts, after = startup.laps.parts, time.monotonic()
    assert sum(parts.values()) == pytest.approx(startup.laps.total_s)
    assert startup.laps.total_s == pytest.approx(after - before, abs=0.03)  # a clock tick, and a pause of the machine
    assert list(parts) == ["python and imports", "engine start", "weights", "kv pages", "listening"]
    assert parts["engine start"] >= 0.02
    assert str(startup).startswith("ready after ")
    assert "weights 0.02" in str(startup)


def test_a_line_a_request_without_its_text() -> None:
    stream = io.BytesIO()

    async def main() -> None:
        log = RequestLog(stream)
        admission = AdmissionControl(FakeEngine(max_seqs=1), AdmissionLimits(max_queue=1), observer=log,
                                     clock=asyncio.get_running_loop().time)
        tickets = [Reading(admission, QueuedRequest("secret words", FilledParams(max_tokens=5), id=f"r{i}", key="k",
                                        ignored=("user", "messages[0].id")))
                   for i in range(5)]
        tickets.append(Reading(admission, QueuedRequest("secret words", FilledParams(max_tokens=9), id="late",
                                                        deadline_s=0.1)))
        with pytest.raises(QueueFullError):
            Reading(admission, QueuedRequest("secret words", FilledParams(), id="refused"))
        await asyncio.sleep(5)
        log.close()

    run(main())
    lines = {line["id"]: line for line in map(json.loads, stream.getvalue().decode().splitlines())}
    assert len(lines) == 7
    assert "secret" not in stream.getvalue().decode()
    one = lines["r0"]
    assert (one["ignored"], lines["late"]["ignored"]) == (["user", "messages[0].id"], None)
    assert (one["finish_reason"], one["completion_tokens"], one["key"], one["error"]) == ("length", 5, "k", None)
    assert (one["ttft_s"], one["e2e_s"], one["queue_s"]) == (0.1, 0.5, 0.0)
    assert lines["late"]["finish_reason"] == "deadline"
    assert lines["refused"]["finish_reason"] == "rejected"
    assert lines["refused"]["ttft_s"] is None


class Full(io.BytesIO):
    """A disk that is full for a while."""

    left = 2

    def write(self, data: Any) -> int:
        self.left -= 1
        if self.left < 0 and self.left > -4:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_lines_that_cannot_be_written_are_counted_and_hold_nothing_up() -> None:
    stream = Full()
    log = RequestLog(stream)
    for i in range(8):
        log.observe(RequestRecord(f"r{i}", "", 0, 1, 0.0, finished=1.0))
    log.close()
    lines = [json.loads(line) for line in stream.getvalue().decode().splitlines()]
    assert [line["id"] for line in lines if "id" in line] == ["r0", "r1", "r5", "r6", "r7"]
    assert {"log_lines_dropped": 3} in lines


def test_a_watchdog_counts_looks_and_not_seconds() -> None:
    """Every ping is answered: none is pending at eight checks in a row."""
    asked, loop = iter(range(1, 10_000)), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stuck: list[str] = []
    dog = Watchdog(0.4, lambda: next(asked), loop, dump_engine=lambda: None, on_stuck=stuck.append)
    dog.start()
    time.sleep(0.9)
    dog.stop()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    assert stuck == []


def watchdogs() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "drut-watchdog"}


def test_a_life_that_is_cancelled_leaves_no_watchdog_behind(tmp_path: Path) -> None:
    """Else it would find the event loop gone, and end the process."""

    async def main() -> None:
        async with AsyncEngine(write_bytes_model(tmp_path), threads=1) as engine:
            life = asyncio.ensure_future(Lifecycle(engine, AdmissionControl(engine), Health(), drain_s=1,
                                                   stuck_s=0.4).run())
            await asyncio.sleep(0.2)
            assert watchdogs() - before
            life.cancel()
            with pytest.raises(asyncio.CancelledError):
                await life

    before = watchdogs()  # of servers that other tests share
    asyncio.run(main())
    for thread in watchdogs() - before:
        thread.join(5)
    assert not watchdogs() - before
