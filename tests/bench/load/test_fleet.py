"""Runs with client processes, from the parent's side."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from drut.bench.load.client import Target
from drut.bench.load.fleet import ClosedLoop, LoadPlan, LoadProgress, LoadResult, OpenLoop, run_load, workers_for
from drut.bench.load.schedule import ArrivalRate, Schedule
from drut.bench.load.wire import MeasureWindow
from drut.bench.work import ConversationTurn, Session
from drut.errors import DrutError, RequestError
from drut.machine import usable_cpus
from tests.bench.scripted import Request, ScriptedServer, tokens
from tests.bench.virtual import Clock


def sessions(count: int | None = None, every_s: float | None = None) -> Iterator[Session]:
    for i in itertools.count() if count is None else range(count):
        yield Session(str(i), [ConversationTurn(messages=[{"role": "user", "content": "hello"}], max_tokens=3)],
                      at_s=None if every_s is None else i * every_s)


def ran(url: str, loop: OpenLoop | ClosedLoop, window: MeasureWindow, work: Iterator[Session], workers: int = 1,
        heard: list[LoadProgress] | None = None) -> LoadResult:
    plan = LoadPlan(Target(url, "m"), window, loop, workers)
    return asyncio.run(run_load(plan, work, None if heard is None else heard.append))


def test_an_open_loop_over_two_processes_keeps_one_schedule() -> None:
    schedule = Schedule(ArrivalRate.steady(50.0), "gamma", 2.0, 5)
    heard: list[LoadProgress] = []
    with ScriptedServer(tokens(3, 0.01)) as server:
        load = ran(server.url, OpenLoop(schedule), MeasureWindow(0.3, 1.3, 30.0), sessions(), 2, heard)
        assert len({r.connection for r in server.requests}) >= 2
    early = [r for r in load.records if r.scheduled < 1.3]
    assert [r.scheduled for r in early] == schedule.until(1.3)
    assert [r.counted for r in load.records] == [0.3 <= r.scheduled < 1.3 for r in load.records]
    assert {r.failure for r in load.records if r.counted} == {None}
    assert len(load.cpu) == 2
    assert 0 < min(load.cpu) <= max(load.cpu) < 1
    assert not load.behind
    assert load.window == MeasureWindow(0.3, 1.3, 30.0)
    assert heard[-1].done == len(load.records)
    waits = sorted(r.arrivals[0] - r.scheduled for r in load.records if r.failure is None)
    assert heard[-1].ttft_s == waits[len(waits) // 2]
    assert abs(load.started_at - time.time()) < 60


@pytest.mark.usefixtures("virtual_time")
def test_a_closed_loop_keeps_so_many_in_flight_over_two_processes() -> None:
    most = running = 0

    async def handler(request: Request) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        try:
            await tokens(3, 0.02)(request)
        finally:
            running -= 1

    with ScriptedServer(handler) as server:
        load = ran(server.url, ClosedLoop(5), MeasureWindow(0.3, 1.0, 30.0), sessions(), 2)
    assert most == 5
    assert sum(r.counted for r in load.records) > 5


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("drain", [0.0, 30.0])
def test_answers_that_outlast_warm_up_and_window_are_measured_where_they_are_waited_for(drain: float) -> None:
    """A window without any would leave out the slow ones."""
    with ScriptedServer(tokens(1, 1.0)) as server:
        load = ran(server.url, ClosedLoop(2), MeasureWindow(0.2, 0.5, 30.0, drain), sessions())
    assert [(r.counted, r.failure) for r in load.records] == [(True, None) if drain else (False, "unfinished")] * 2
    with ScriptedServer(tokens(1, 0.3)) as server:
        load = ran(server.url, ClosedLoop(2), MeasureWindow(0.2, 1.5, 30.0, drain), sessions())
    assert [r.counted for r in load.records] == [0.2 <= r.scheduled < 1.5 for r in load.records]
    assert [r.counted for r in load.records[:3]] == [False, False, True]


@pytest.mark.usefixtures("virtual_time")
def test_users_begin_one_after_the_other_over_half_the_warm_up() -> None:
    with ScriptedServer(tokens(1, 0.3)) as server:
        load = ran(server.url, ClosedLoop(4), MeasureWindow(0.4, 0.6, 30.0), sessions(), 2)
    assert [r.scheduled for r in load.records[:4]] == pytest.approx([0.0, 0.05, 0.1, 0.15])


@pytest.mark.usefixtures("virtual_time")
def test_sessions_arrive_until_the_last_measured_one_is_over() -> None:
    with ScriptedServer(tokens(1, 0.6)) as server:
        load = ran(server.url, OpenLoop(Schedule(ArrivalRate.steady(50.0), "constant")), MeasureWindow(0.1, 0.4, 30.0),
                   sessions())
    over = max(r.ended for r in load.records if r.counted and r.ended is not None)
    assert max(r.scheduled for r in load.records) > over - 0.3  # with the window's end alone it would be 0.6 before


@pytest.mark.usefixtures("virtual_time")
def test_a_trace_is_replayed_at_its_times_and_the_window_ends_with_it() -> None:
    with ScriptedServer(tokens(1)) as server:
        load = ran(server.url, OpenLoop(None), MeasureWindow(0.1, 60.0, 30.0), sessions(12, 0.05), 2)
    assert [r.scheduled for r in load.records] == [i * 0.05 for i in range(12)]
    assert load.window.end == pytest.approx(0.55)
    assert sum(r.counted for r in load.records) == 10
    assert not load.behind


@pytest.mark.usefixtures("virtual_time")
def test_a_closed_loop_ends_where_a_slot_first_finds_no_work() -> None:
    with ScriptedServer(tokens(1, 0.02)) as server:
        load = ran(server.url, ClosedLoop(2), MeasureWindow(0.0, 60.0, 30.0), sessions(20))
    assert len(load.records) == 20
    assert load.window.end < 30
    assert max(r.scheduled for r in load.records) < load.window.end


@pytest.mark.usefixtures("virtual_time")
def test_a_workload_that_ends_is_shared_by_all_processes() -> None:
    """Else the slots of one go without while the other has all that is left."""
    with ScriptedServer(tokens(1, 0.02)) as server:
        load = ran(server.url, ClosedLoop(4), MeasureWindow(0.0, 60.0, 30.0), sessions(120), 2)
    assert len(load.records) == 120
    assert sum(r.counted for r in load.records) >= 80
    assert min(load.cpu) > 0


def test_a_workload_made_too_slowly_is_reported(virtual_time: Clock) -> None:
    def slow() -> Iterator[Session]:
        for session in sessions():
            virtual_time.now += 0 if int(session.id) < 64 else 0.1
            yield session

    schedule = Schedule(ArrivalRate.steady(200.0), "constant")
    with ScriptedServer(tokens(1)) as server:
        assert ran(server.url, OpenLoop(schedule), MeasureWindow(0.0, 0.6, 0.5), slow()).behind


@pytest.mark.usefixtures("virtual_time")
def test_what_cannot_run_is_one_error() -> None:
    loop, window = OpenLoop(Schedule(ArrivalRate.steady(10.0))), MeasureWindow(0.0, 0.2, 1.0)
    with pytest.raises(DrutError, match=r"cannot connect to 127\.0\.0\.1:9"):
        ran("http://127.0.0.1:9", loop, window, sessions())
    with ScriptedServer(tokens(1)) as server:
        with pytest.raises(RequestError, match="no sessions"):
            ran(server.url, loop, window, sessions(0))
        with pytest.raises(RequestError, match="no session of the workload is due before"):
            ran(server.url, OpenLoop(None), window, (Session(s.id, s.turns, at_s=99.0) for s in sessions(3)))
        with pytest.raises(RequestError, match="session 0 has no arrival time"):
            ran(server.url, OpenLoop(None), window, sessions())
    with pytest.raises(RequestError, match="concurrency must be at least 1"):
        ClosedLoop(0)


@pytest.mark.usefixtures("virtual_time")
def test_a_workload_that_fails_in_mid_run_is_its_own_error() -> None:
    def breaks() -> Iterator[Session]:
        yield from sessions(100)
        raise RequestError("line 101 is no session")

    with ScriptedServer(tokens(1)) as server, pytest.raises(RequestError, match="line 101"):
        ran(server.url, OpenLoop(Schedule(ArrivalRate.steady(100.0))), MeasureWindow(0.0, 30.0, 1.0), breaks())


def test_processes_go_with_the_load_and_the_cpus() -> None:
    cpus = len(usable_cpus())
    assert workers_for(OpenLoop(Schedule(ArrivalRate.steady(5.0)))) == 1
    assert workers_for(OpenLoop(Schedule(ArrivalRate(5.0, 1e6)))) == cpus
    assert workers_for(ClosedLoop(1)) == 1
    assert workers_for(ClosedLoop(10_000)) == cpus
