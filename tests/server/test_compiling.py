"""Grammars that take long to compile hold up no request without one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from drut.constrain import Constraint
from drut.constrain.compiler import Grammars
from tests.server.rig import Reply, Running, serving, until

SLOW = 6  # requests, more than there are text threads


@pytest.fixture
def impatient(model_path: Path) -> Iterator[Running]:
    with serving(model_path, max_wait_s=0.3) as running:
        yield running


@contextmanager
def held_up(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Grammars of `slow` are compiled when the event is set."""
    assert running.server.service.loaded is not None
    grammars, free = running.server.service.loaded.texts.grammars, threading.Event()
    assert grammars is not None
    build = Grammars.build

    def wait(constraint: Constraint) -> object:
        assert not constraint.source.startswith("slow") or free.wait(60)
        return build(grammars, constraint)

    monkeypatch.setattr(grammars, "build", wait)
    try:
        yield free
    finally:
        free.set()


def asking(running: Running, regex: str) -> Reply:
    return running.complete(structured_outputs={"regex": regex}, max_tokens=20)


def test_others_are_answered_while_a_grammar_is_compiled(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_up(server, monkeypatch) as free, ThreadPoolExecutor(SLOW) as pool:
        assert asking(server, "known").status == 200
        slow = [pool.submit(asking, server, f"slow{i}") for i in range(SLOW)]
        compilers = server.server.service.compilers
        until(lambda: len(compilers._turn._waiters or ()) == SLOW - 1)
        assert server.complete().status == 200
        assert asking(server, "known").json["choices"][0]["text"] == "known", "it is compiled already"
        free.set()
        assert [reply.result().json["choices"][0]["text"] for reply in slow] == [f"slow{i}" for i in range(SLOW)]


def test_a_grammar_whose_turn_does_not_come_is_no_fault_of_it(impatient: Running,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    with held_up(impatient, monkeypatch) as free, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(asking, impatient, "slow")
        until(lambda: impatient.server.service.compilers._turn.locked())
        refused = asking(impatient, "quick")
        assert (refused.status, refused.error["code"]) == (429, "queue_full")
        for regex in ("quick", "slow"):  # whose turn has not come, and which is compiled just now
            late = impatient.complete(structured_outputs={"regex": regex}, deadline_s=0.01)
            assert (late.status, late.error["code"]) == (504, "deadline_exceeded")
        free.set()
        assert slow.result().status == 200
        assert asking(impatient, "quick").status == 200
