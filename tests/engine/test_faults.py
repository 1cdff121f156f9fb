"""Every way to give a row the wrong keys and values raises the alarm, before a token comes of it; nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drut.cache.pool import KvCorruptionError
from drut.engine.engine import Engine
from drut.engine.request.params import SamplingParams
from drut.engine.request.request import Request
from drut.kernels.kv import PAGE_TOKENS
from tests.engine.testbed import check_answer, finish_all, make_engine

P = PAGE_TOKENS
PARAMS = SamplingParams(max_tokens=30, seed=1, ignore_eos=True, temperature=0)
STEPS = 6

Scene = tuple[Engine, Request, Request]


def steps(engine: Engine, count: int) -> None:
    for _ in range(count):
        engine.step()


def scene(overlap: bool = False, **settings: object) -> Scene:
    """Two requests decoding in a prompt of two and a half pages; their own third pages will hold 16 tokens each."""
    engine = make_engine(canary=True, overlap=overlap, chunk=40, **settings)  # type: ignore[arg-type]
    (one,) = engine.submit(list(range(40)), PARAMS)
    (two,) = engine.submit(list(range(40))[::-1], PARAMS)
    steps(engine, STEPS)
    assert one.decoding
    assert two.decoding
    assert (one.table.shared, len(one.table.pages)) == (2, 3)
    return engine, one, two


def swap_shared(engine: Engine, one: Request, two: Request) -> None:
    one.table.pages[:2] = one.table.pages[1::-1]


def swap_own(engine: Engine, one: Request, two: Request) -> None:
    one.table.pages[2], two.table.pages[2] = two.table.pages[2], one.table.pages[2]


def swap_one_of_another(engine: Engine, one: Request, two: Request) -> None:
    one.table.pages[0] = two.table.pages[0]


def skip_a_row(engine: Engine, one: Request, two: Request) -> None:
    one.tokens.append(5)
    one.progress._computed += 1


def change_a_token(engine: Engine, one: Request, two: Request) -> None:
    one.tokens[17] += 1


def wrong_position(engine: Engine, one: Request, two: Request) -> None:
    """The row is computed as if it came later, so it is written past its place."""
    one.progress._computed += 1
    one.tokens.insert(0, one.tokens[0])


def free_early(engine: Engine, one: Request, two: Request) -> None:
    engine.cache.pool.free_private([one.table.pages[2]])


def evict_early(engine: Engine, one: Request, two: Request) -> None:
    engine.cache.pool.free_cached(one.table.pages[0])


def flip_a_byte(engine: Engine, one: Request, two: Request) -> None:
    engine.cache.pool.memory.data[one.table.pages[1], 77] ^= 4


def share_an_own_page(engine: Engine, one: Request, two: Request) -> None:
    two.table.pages[2] = one.table.pages[2]


FAULTS: list[Callable[[Engine, Request, Request], None]] = [
    swap_shared, swap_own, swap_one_of_another, skip_a_row, change_a_token, wrong_position, free_early, evict_early,
    flip_a_byte, share_an_own_page]
BOOKED = [swap_shared, swap_one_of_another, free_early, evict_early, share_an_own_page]  # those that counting shows


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_the_canary_notices(fault: Callable[[Engine, Request, Request], None], overlap: bool) -> None:
    engine, one, two = scene(overlap)
    said = len(one.output_ids)
    fault(engine, one, two)
    with pytest.raises(KvCorruptionError):
        steps(engine, 3)
    assert len(one.output_ids) <= said + 2, "the step that would have read it never ran"


@pytest.mark.parametrize("fault", BOOKED, ids=lambda f: f.__name__)
def test_the_books_notice(fault: Callable[[Engine, Request, Request], None]) -> None:
    engine, one, two = scene()
    engine.check_idle()
    fault(engine, one, two)
    with pytest.raises(KvCorruptionError):
        engine.check_idle()


@pytest.mark.parametrize("settings", [
    {}, {"overlap": True}, {"prefix_cache": False, "pages": 7}, {"pages": 6}, {"pages": 6, "overlap": True},
    {"force_preempt": 0.3, "overlap": True, "pages": 8}])
def test_no_alarm_without_a_fault(settings: dict[str, object]) -> None:
    engine = make_engine(canary=True, **settings)  # type: ignore[arg-type]
    requests = [r for p in (list(range(40)), [3] * 20, list(range(40))) for r in engine.submit(p, PARAMS)]
    while engine.busy:
        engine.step()
        engine.check_idle()
    for request in requests:
        check_answer(engine, request)
    engine.close()


def test_a_page_given_to_another_is_never_read_as_its_own() -> None:
    """Freed and reused within one step: the stamps are the new owner's, and the old table's reading is noticed."""
    engine, one, _ = scene()
    page = one.table.pages[2]
    engine.cache.pool.free_private([page])
    (three,) = engine.submit([9] * 12, PARAMS)
    with pytest.raises(KvCorruptionError):
        steps(engine, 3)
    assert page in three.table.pages


def test_fault_free_answers_after_an_abort_in_flight() -> None:
    """The aborted request's step still reads its pages while the next owner is scheduled: no alarm, right answers."""
    engine, one, two = scene(overlap=True, pages=7)
    (three,) = engine.submit([9] * 40, PARAMS)
    engine.step()
    engine.abort(one)
    finish_all(engine)
    for request in (two, three):
        check_answer(engine, request)
    engine.close()
