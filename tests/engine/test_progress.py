"""The counts of a request: what may follow what, and that nothing else writes them."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import drut
from drut.engine.request.progress import Progress, ProgressError
from drut.engine.schedule.work import ScheduledRequest

REQUEST: Any = SimpleNamespace(prompt_tokens=3)


def work(progress: Progress, rows: int, draws: int, *, drafts: tuple[int, ...] = (), ahead: int = 0,
         scores: int = 0) -> ScheduledRequest:
    return ScheduledRequest(request=REQUEST, start=progress.computed, rows=rows, draws=draws, scores=scores,
                            epoch=progress.epoch,
                            ahead=ahead, drafts=drafts)


def test_a_prompt_in_chunks_and_a_token() -> None:
    p = Progress([5, 6, 7])
    first = work(p, 2, 0)
    p.launch(first)
    second = work(p, 1, 1)
    p.launch(second)
    assert (p.computed, p.done, p.known, p.inflight) == (3, 0, 4, 1)
    assert p.land(first)
    assert p.done == 2
    assert p.land(second)
    p.add(9)
    assert (p.computed, p.done, p.known, p.output_ids) == (3, 3, 4, [9])


def test_of_drafts_those_that_equal_their_draws_count() -> None:
    for drawn, accepted in (([1, 2, 3], 3), ([1, 9, 3], 2), ([9, 2, 3], 1)):
        p = Progress([5, 6, 7])
        p.attach(2)
        verify = work(p, 3, 3, drafts=(1, 2))
        p.launch(verify)
        assert p.verifying
        assert (p.computed, p.known) == (5, 6)
        assert p.land(verify)
        assert p.accept(verify, drawn) == accepted
        for token in drawn[:accepted]:
            p.add(token)
        assert (p.computed, p.done, p.known) == (2 + accepted, 2 + accepted, 3 + accepted)
        assert not p.verifying


def test_a_preempted_request_keeps_its_tokens_and_not_its_rows() -> None:
    p = Progress([5, 6, 7])
    one = work(p, 3, 1)
    p.launch(one)
    p.preempt()
    assert (p.computed, p.done, p.known) == (0, 0, 4)
    assert not p.land(one)
    p.add(4)
    assert (p.computed, p.done, p.known) == (0, 0, 4)


def test_steps_that_did_not_run_are_retracted() -> None:
    p = Progress([5, 6, 7])
    burst = work(p, 3, 1, ahead=3)
    p.launch(burst)
    assert (p.computed, p.known) == (6, 7)
    for step in range(2):
        assert p.land(burst, step)
        p.add(step)
    p.retract(burst, 2)
    assert (p.computed, p.done, p.known) == (4, 4, 5)


def test_forced_tokens_come_behind_those_on_their_way() -> None:
    p = Progress([5, 6, 7])
    one = work(p, 3, 1)
    p.launch(one)
    p.append_forced([8, 9])
    assert (p.known, p.next_forced()) == (6, None)
    p.land(one)
    p.add(1)
    assert (p.next_forced(), p.known) == (8, 5), "the caller adds it"
    p.add(8)
    assert (p.next_forced(), p.next_forced()) == (9, None)


def test_a_contradiction_is_raised_at_once() -> None:
    p = Progress([5, 6, 7])
    with pytest.raises(ProgressError, match="rows from 1 are launched, 0 are computed"):
        p.launch(ScheduledRequest(request=REQUEST, start=1, rows=1, draws=0, scores=0, epoch=0))
    with pytest.raises(ProgressError, match="done 4, computed 4, known 3"):
        p.attach(4)
    with pytest.raises(ProgressError, match="computed 5, known 1"):
        Progress([1]).launch(ScheduledRequest(request=REQUEST, start=0, rows=5, draws=0, scores=0, epoch=0))


def test_nothing_else_writes_progress() -> None:
    """No assignment to a count, and no change of the list of tokens, outside of Progress."""
    counts = {name.removeprefix("_") for name in Progress.__slots__}
    found = []
    for path in Path(drut.__file__).parent.glob("**/*.py"):
        if path.parts[-2] not in ("engine", "plan", "speculate") or path.name == "progress.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr.lstrip("_") in counts and _of_progress(target):
                    found.append(f"{path.name}:{target.lineno} {ast.unparse(target)}")
            if isinstance(node, ast.Attribute) and node.attr in ("append", "extend", "pop", "clear", "insert") \
                    and isinstance(node.value, ast.Attribute) and node.value.attr == "tokens":
                found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    assert found == []


def _of_progress(target: ast.Attribute) -> bool:
    """Whether it may be a count of a request: not an attribute of the same name that a class sets on itself."""
    return not (isinstance(target.value, ast.Name) and target.value.id == "self")
