"""Grammars that take long to compile hold up no request without one."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drut.constrain import Constraint
from drut.constrain.grammar_compiler import GrammarCompiler
from drut.errors import EngineDeadError
from drut.server.grammars import NO_FAULT, Compilers
from drut.server.openai.protocol.structured import RequestedFormat
from tests.server.rig import Reply, Running, serving, until

SLOW = 6  # requests, more than there are text threads


@pytest.fixture
def impatient(model_path: Path) -> Iterator[Running]:
    with serving(model_path, max_wait_s=0.3) as running:
        yield running


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Grammars of `slow` are compiled when the event is set."""
    free, build = threading.Event(), GrammarCompiler.build

    def wait(grammars: GrammarCompiler, constraint: Constraint) -> object:
        assert not constraint.source.startswith("slow") or free.wait(60)
        return build(grammars, constraint)

    monkeypatch.setattr(GrammarCompiler, "build", wait)
    try:
        yield free
    finally:
        free.set()


def turn(running: Running) -> asyncio.Lock:
    assert running.server.service.loaded is not None
    return running.server.service.loaded.compilers._turn


def asking(running: Running, regex: str) -> Reply:
    return running.complete(structured_outputs={"regex": regex}, max_tokens=20)


def test_others_are_answered_while_a_grammar_is_compiled(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_up(monkeypatch) as free, ThreadPoolExecutor(SLOW) as pool:
        assert asking(server, "known").status == 200
        slow = [pool.submit(asking, server, f"slow{i}") for i in range(SLOW)]
        until(lambda: len(turn(server)._waiters or ()) == SLOW - 1)
        assert server.complete().status == 200
        assert asking(server, "known").json["choices"][0]["text"] == "known", "it is compiled already"
        free.set()
        assert [reply.result().json["choices"][0]["text"] for reply in slow] == [f"slow{i}" for i in range(SLOW)]


def test_a_grammar_whose_turn_does_not_come_is_no_fault_of_it(impatient: Running,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    with held_up(monkeypatch) as free, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(asking, impatient, "slow")
        until(lambda: turn(impatient).locked())
        refused = asking(impatient, "quick")
        assert (refused.status, refused.error["code"]) == (429, "queue_full")
        for regex in ("quick", "slow"):  # whose turn has not come, and which is compiled just now
            late = impatient.complete(structured_outputs={"regex": regex}, deadline_s=0.01)
            assert (late.status, late.error["code"]) == (504, "deadline_exceeded")
        free.set()
        assert slow.result().status == 200
        assert asking(impatient, "quick").status == 200


def test_a_grammar_that_takes_too_long_is_refused_and_others_follow(model_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    with held_up(monkeypatch) as free, serving(model_path, engine={"grammar_timeout_s": 0.2}) as running:
        late = asking(running, "slow")
        assert (late.status, late.error["param"]) == (400, "structured_outputs.regex")
        assert "longer than 0.2 s" in late.error["message"]
        free.set()
        assert asking(running, "slow").json["choices"][0]["text"] == "slow"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sources of what has been compiled."""
    built, build = list[str](), GrammarCompiler.build

    def note(grammars: GrammarCompiler, constraint: Constraint) -> object:
        built.append(constraint.source)
        return build(grammars, constraint)

    monkeypatch.setattr(GrammarCompiler, "build", note)
    return built


@pytest.mark.parametrize("transport", ["thread", "process"])
def test_one_that_is_no_good_is_refused_alike(model_path: Path, built: list[str], transport: str) -> None:
    """However the engine is reached, and before a stream begins. It is no fault of the server, and the server's own
    process compiles nothing."""
    with serving(model_path, transport=transport) as running:
        for stream in (False, True):
            refused = running.complete(structured_outputs={"regex": "a[^\\s\\S]"}, stream=stream)
            assert (refused.status, refused.error["param"]) == (400, "structured_outputs.regex")
            assert "no token of this model can come" in refused.error["message"]
        assert asking(running, "good").json["choices"][0]["text"] == "good"
        metrics = running.get("/metrics").raw.decode()
        assert re.findall(r"drut_request_failures_total\{.*\} (.*)", metrics) == ["0.0"] * 5
        assert 'status="5' not in metrics
    assert built == ([] if transport == "process" else ["a[^\\s\\S]", "good"])


class Stopped:
    """An engine that is stopped, and later found to have ended."""

    heard_at = 0.0

    async def compile(self, constraint: Constraint) -> None:
        await asyncio.sleep(0.2)
        raise EngineDeadError("it is gone")


def test_an_engine_that_is_stopped_is_no_fault_of_the_grammar() -> None:
    compilers = Compilers(Stopped(), seconds=0.02, patience_s=1, room=1 << 20)
    with pytest.raises(EngineDeadError):
        asyncio.run(compilers.check([RequestedFormat(Constraint.regex("a"), "regex")], asyncio.to_thread))


SCHEMA = {"type": "object", "properties": {"once": {"type": "boolean"}}, "required": ["once"],
          "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "once", "strict": True, "parameters": SCHEMA}}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}


@pytest.mark.parametrize("asked", [
    {"structured_outputs": {"regex": "once"}}, {"response_format": FORMAT, "n": 3}, {"tools": [TOOL]},
    {"tools": [TOOL], "tool_choice": "required"}, {"tools": [TOOL], "response_format": FORMAT}])
def test_a_request_has_one_grammar_compiled_once(caller: Running, built: list[str], asked: dict[str, Any]) -> None:
    for seed in range(3):
        assert caller.chat(**asked, seed=seed).status == 200
    assert len(built) == 1, built


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_has_dropped_is_compiled_for_its_request(server: Running, built: list[str],
                                                                 stream: bool) -> None:
    """A fault found so late is still the client's, and still comes before a stream begins."""
    assert server.server.service.loaded is not None
    compilers = server.server.service.loaded.compilers
    for regex, status in ((f"dropped{stream:d}", 200), (f"dropped{stream:d}[^\\s\\S]", 400)):
        compilers._faults.put(Constraint.regex(regex), NO_FAULT)
        assert server.complete(structured_outputs={"regex": regex}, stream=stream).status == status
        assert built.pop() == regex
    assert not built
