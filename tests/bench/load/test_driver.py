"""Open and closed loops in one process: who is sent when, what is measured, how a run ends."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from drut.bench.load import driver
from drut.bench.load.client import Client, Target
from drut.bench.load.driver import Driver
from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import ArrivalOffer, MeasureWindow
from drut.bench.work import ConversationTurn, Session
from tests.bench.scripted import Handler, Request, ScriptedServer, tokens
from tests.bench.virtual import Clock

pytestmark = pytest.mark.usefixtures("virtual_time")


def hello(i: int, **more: Any) -> Session:
    return Session(str(i), [ConversationTurn(messages=[{"role": "user", "content": "hello"}], max_tokens=3, **more)])


def driven(handler: Handler, window: MeasureWindow, offers: Iterator[ArrivalOffer],
           stagger: list[float] | None = None) -> tuple[list[LoadRecord], Driver]:
    """All records, times from the start."""
    records: list[LoadRecord] = []

    async def main(url: str) -> Driver:
        client = Client(Target(url, "m"))
        await client.prepare()
        driver = Driver(client, window, records.append)
        start = time.monotonic() + 0.02

        async def following() -> ArrivalOffer | None:
            return next(offers, None)

        await driver.run(start, following, stagger)
        return driver

    with ScriptedServer(handler) as server:
        driver = asyncio.run(main(server.url))
    records.sort(key=lambda record: record.scheduled)
    return records, driver


def by_the_clock(gap: float, count: int | None = None) -> Iterator[ArrivalOffer]:
    numbers = itertools.count() if count is None else range(count)
    return (ArrivalOffer(hello(i), i * gap) for i in numbers)


def one_at_a_time(service_s: float) -> Handler:
    """A queue with one server."""
    lock = asyncio.Lock()

    async def handler(request: Request) -> None:
        async with lock:
            await tokens(3, service_s)(request)

    return handler


def test_an_open_loop_waits_for_no_answer() -> None:
    """The server answers none before it has all fifty: a client with a gate of any width below would wait for ever."""
    all_here = asyncio.Event()
    here = 0

    async def handler(request: Request) -> None:
        nonlocal here
        here += 1
        if here == 50:
            all_here.set()
        await all_here.wait()
        await tokens(3)(request)

    records, _ = driven(handler, MeasureWindow(0.0, 0.5, 60.0), by_the_clock(0.01))
    measured = [r for r in records if r.counted]
    assert [r.scheduled for r in measured] == [i * 0.01 for i in range(50)]
    assert {r.failure for r in measured} == {None}
    assert all(r.sent is not None and r.sent >= r.scheduled for r in measured)


def test_what_is_not_over_when_the_grace_has_passed_has_failed() -> None:
    records, _ = driven(one_at_a_time(60.0), MeasureWindow(0.0, 0.2, 0.3), by_the_clock(0.05))
    measured = [r for r in records if r.counted]
    assert [r.failure for r in measured] == ["unfinished"] * 4
    assert all(r.ended is not None and 0.5 <= r.ended < 60.0 for r in measured)  # from the run's start


@pytest.mark.parametrize("end", [0.2, 0.20000001, 0.2000001])
def test_the_last_moment_of_the_window_is_measured_too(end: float) -> None:
    """A request that is due just before the end has hardly begun when the end comes."""
    dues = [0.1, 0.2, 0.3, 0.4, 0.5]
    records, _ = driven(tokens(2, 0.05), MeasureWindow(0.0, end, 30.0),
                        (ArrivalOffer(hello(i), t) for i, t in enumerate(dues)))
    assert [r.failure for r in records if r.counted] == [None] * sum(t < end for t in dues)


def test_a_turn_that_follows_within_the_window_is_measured_too() -> None:
    """The first answer of each of many sessions ends near the window's end, and its next turn is due at once."""
    turns = [ConversationTurn(messages=[{"role": "user", "content": "a"}], max_tokens=2)] * 2
    offers = (ArrivalOffer(Session(str(i), turns), 0.01 * i) for i in itertools.count())
    records, _ = driven(tokens(2, 0.02), MeasureWindow(0.0, 0.3, 30.0), offers)
    assert {r.failure for r in records if r.counted} == {None}
    firsts = [r for r in records if r.turn == 0 and r.ended is not None and r.ended < 0.3]
    assert {r.session for r in firsts} <= {r.session for r in records if r.turn == 1}


def test_past_capacity_the_wait_is_in_the_figures() -> None:
    """50 requests a second at a server of 25: the last measured one waits for half the time that the load lasted.
    A client that waits for answers, or counts from sending after a gate, would report the 40 ms of service."""
    records, _ = driven(one_at_a_time(0.04), MeasureWindow(0.2, 1.0, 60.0), by_the_clock(0.02))
    measured = [r for r in records if r.counted]
    assert {r.failure for r in measured} == {None}
    waits = [r.arrivals[0] - r.scheduled for r in measured]
    assert len(waits) == 40
    # Before the last one 49 others are served: 2 s of service, less the 0.98 s for which it comes later.
    assert waits[-1] > 50 * 0.04 - 0.98 - 0.001
    assert waits[0] > 11 * 0.04 - 0.2 - 0.001


def test_the_load_goes_on_until_the_last_measured_request_is_over() -> None:
    """Else the last ones would meet an emptying server."""
    records, _ = driven(tokens(3, 0.3), MeasureWindow(0.1, 0.5, 5.0), by_the_clock(0.05))
    measured = [r for r in records if r.counted]
    assert [r.scheduled for r in measured] == [i * 0.05 for i in range(2, 10)]
    assert {r.failure for r in measured} == {None}
    over = max(r.ended for r in measured)
    after = [r.scheduled for r in records if r.scheduled >= 0.5]
    assert after == [i * 0.05 for i in range(10, 10 + len(after))]
    assert over - 0.15 < after[-1] <= over  # it continues at its rate until then, and no longer


def test_a_closed_loop_hands_its_slots_over_without_a_gap() -> None:
    """The first burst of C prompts is in the warm-up, and slots neither drain nor start anew at the window."""
    offers = (ArrivalOffer(hello(i)) for i in itertools.count())
    staggers = [0.02 * i for i in range(5)]
    records, _ = driven(tokens(3, 0.05), MeasureWindow(0.4, 1.2, 30.0), offers, staggers)
    assert all(r.counted == (0.4 <= r.scheduled < 1.2) for r in records)
    assert {r.failure for r in records if r.counted} <= {None}
    starts = sorted(r.scheduled for r in records)
    assert set(staggers) <= set(starts)
    # Every other request begins at the very moment at which one before it ends.
    assert set(starts) - set(staggers) <= {r.ended for r in records}
    across = [r for r in records if r.scheduled < 0.4 <= (r.ended or 99.0)]
    assert len(across) == 5  # every slot is busy over the window's start
    assert not any(r.counted for r in across)


def test_turns_come_in_order_with_a_growing_prefix() -> None:
    turns = [ConversationTurn(messages=[{"role": "user", "content": c}], max_tokens=2, think_s=0.1) for c in "abc"]
    replies = [[{"role": "assistant", "content": "A"}, {"role": "tool", "content": "T"}],
               [{"role": "assistant", "content": "B"}]]
    seen: dict[str, list[Any]] = {"own": [], "given": []}

    async def handler(request: Request) -> None:
        seen[request.body["user"]].append(request.body["messages"])
        await tokens(2, 0.02)(request)

    def session(name: str, given: list[Any] | None) -> Session:
        return Session(name, [ConversationTurn(t.messages, max_tokens=2, think_s=t.think_s,
                                               body={"user": name}) for t in turns],
                       given)

    offers = iter([ArrivalOffer(session("own", None), 0.0), ArrivalOffer(session("given", replies), 0.05)])
    records, _ = driven(handler, MeasureWindow(0.0, 5.0, 5.0), offers)
    reply = {"role": "assistant", "content": "t0 t1 "}
    user = [{"role": "user", "content": c} for c in "abc"]
    assert seen["own"] == [[user[0]], [user[0], reply, user[1]], [user[0], reply, user[1], reply, user[2]]]
    assert seen["given"] == [[user[0]], [user[0], *replies[0], user[1]],
                             [user[0], *replies[0], user[1], *replies[1], user[2]]]
    own = [r for r in records if r.session == "own"]
    assert [r.turn for r in own] == [0, 1, 2]
    for before, after in itertools.pairwise(own):
        assert before.ended is not None
        assert after.scheduled == pytest.approx(before.ended + 0.1)


def test_a_failed_turn_ends_its_session() -> None:
    async def handler(request: Request) -> None:
        await request.json({"error": "no"}, 500)

    session = Session("s", [ConversationTurn(messages=[{"role": "user", "content": "a"}])] * 3)
    records, _ = driven(handler, MeasureWindow(0.0, 1.0, 1.0), iter([ArrivalOffer(session, 0.0)]))
    assert [(r.turn, r.failure) for r in records] == [(0, "http")]


def test_what_delays_one_session_does_not_delay_those_after_it(virtual_time: Clock) -> None:
    """Each takes 5 ms to make. Were gaps slept and not times, the last would be 200 ms late."""
    def slowly() -> Iterator[ArrivalOffer]:
        for offer in by_the_clock(0.02, 40):
            virtual_time.now += 0.005
            yield offer

    records, _ = driven(tokens(1), MeasureWindow(0.0, 0.8, 5.0), slowly())
    assert min(r.sent - r.scheduled for r in records[-10:] if r.sent is not None) < 0.05


def test_a_closed_loop_goes_on_until_the_last_measured_request_is_over() -> None:
    asked = 0

    async def first_is_slow(request: Request) -> None:
        nonlocal asked
        asked += 1
        await tokens(1, 1.0 if asked == 1 else 0.02)(request)

    records, _ = driven(first_is_slow, MeasureWindow(0.0, 0.3, 30.0),
                        (ArrivalOffer(hello(i)) for i in itertools.count()), [0.0] * 3)
    slow = records[0] if (records[0].ended or 0.0) > 0.9 else max(records[:3], key=lambda r: r.ended or 0.0)
    assert slow.ended is not None
    assert max(r.scheduled for r in records) > slow.ended - 0.3  # with the window's end alone it would be 0.7 before


def test_a_user_whose_last_measured_answer_has_come_asks_for_no_other() -> None:
    """A server that continues an abandoned request would have one request too many."""
    records, _ = driven(tokens(3, 0.1), MeasureWindow(0.0, 0.5, 30.0),
                        (ArrivalOffer(hello(i)) for i in itertools.count()), [0.0])
    assert {(r.counted, r.failure) for r in records} == {(True, None)}
    assert records[-1].scheduled < 0.5 <= (records[-1].ended or 0.0)


@pytest.mark.parametrize("stagger", [[0.0], None])
def test_no_turn_follows_the_last_measured_one(stagger: list[float] | None) -> None:
    session = Session("two", hello(0).turns * 2)
    offers = (ArrivalOffer(session, None if stagger else float(i)) for i in itertools.count())
    records, _ = driven(tokens(3, 0.1), MeasureWindow(0.0, 0.05, 30.0), offers, stagger)
    assert [(r.turn, r.counted, r.failure) for r in records] == [(0, True, None)]


def the_first_waits_for_the_third(third_s: float) -> Handler:
    """So that another request is under way when the first is over; that one takes `third_s` from there on."""
    asked, third_is_here, first_is_over = 0, asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await third_is_here.wait()
            await tokens(1)(request)
            first_is_over.set()
        elif asked == 2:
            await tokens(1, 0.3)(request)
        else:
            third_is_here.set()
            await first_is_over.wait()
            await tokens(1, third_s)(request)

    return handler


@pytest.mark.parametrize("stagger", [[0.0, 0.05], None])
@pytest.mark.parametrize(("drain", "third_s"), [(0.0, 600.0), (0.2, 600.0), (60.0, 0.3)])
def test_what_is_in_flight_at_the_end_is_waited_for_as_long_as_asked(
    stagger: list[float] | None, drain: float, third_s: float
) -> None:
    offers = by_the_clock(0.1) if stagger is None else (ArrivalOffer(hello(i)) for i in itertools.count())
    records, _ = driven(the_first_waits_for_the_third(third_s), MeasureWindow(0.0, 0.15, 60.0, drain), offers, stagger)
    assert {r.failure for r in records if r.counted} == {None}
    assert {r.failure for r in records if not r.counted} == {None if drain > third_s else "unfinished"}


def test_a_server_that_refuses_at_once_is_not_flooded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that double, and from the beginning again after an answer that is well."""
    monkeypatch.setattr(driver, "PAUSE_S", 0.02)
    asked = 0

    async def handler(request: Request) -> None:
        nonlocal asked
        asked += 1
        await (tokens(1, 0.01) if asked == 6 else _no)(request)

    records, _ = driven(handler, MeasureWindow(0.0, 60.0, 1.0), (ArrivalOffer(hello(i)) for i in range(8)), [0.0])
    gaps = [b.scheduled - (a.ended or 0.0) for a, b in itertools.pairwise(records)]
    assert gaps == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.0, 0.02])
    assert all(r.sent is not None and r.sent >= r.scheduled for r in records)


async def _no(request: Request) -> None:
    await request.json({"error": "no"}, 500)


def test_a_workload_that_ends_ends_the_run() -> None:
    start = time.monotonic()
    records, ended = driven(tokens(2, 0.01), MeasureWindow(0.0, 60.0, 60.0), by_the_clock(0.02, 10))
    assert len(records) == 10
    records, ended = driven(tokens(2, 0.01), MeasureWindow(0.0, 60.0, 60.0),
                            (ArrivalOffer(hello(i)) for i in range(10)), [0.0, 0.0])
    assert len(records) == 10
    assert ended.dry_s is not None
    assert ended.dry_s < 5
    assert time.monotonic() - start < 30


def test_text_is_kept_where_no_usage_came_and_only_there() -> None:
    async def handler(request: Request) -> None:
        await request.head()
        await request.text("some", "length")
        if len(server_requests) % 2:
            await request.usage(1, 1)
        server_requests.append(request)
        await request.done()

    server_requests: list[Request] = []
    records, _ = driven(handler, MeasureWindow(0.0, 1.0, 1.0), by_the_clock(0.1, 2))
    assert [r.text for r in records] == ["some", None]
