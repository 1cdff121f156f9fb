"""A burst in one native call against the same steps one by one: outputs, ends, and what it leaves of the descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from drut import LLM
from drut.engine.request.params import FilledParams
from drut.kernels.backend import Executable
from drut.kernels.burst import Burst
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.native import library
from drut.kernels.native.burst import NativeBurst
from drut.kernels.output import StepOutput
from tests.engine.models import write_bytes_model, write_poisoned_model

pytestmark = pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")

PROMPTS = ([72, 101, 108], [33] * 18, [5])
STEPS = 20  # two of the sequences enter new pages
PAGES = ((0, 1), (2, 3, 4), (5, 6))


@pytest.fixture(params=[1, 3])
def llm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LLM]:
    with LLM(write_bytes_model(tmp_path), threads=request.param, kv_cache_gb=0.01) as made:
        yield made


def start(llm: LLM) -> tuple[Executable, StepDescriptor]:
    """Prompts computed, the first decoding step described. Each sequence has a slot in a group that no layer uses."""
    executable, params = llm.engine.runner.executable, FilledParams(logprobs=2, temperature=1.0)
    step = StepDescriptor(32, 4, 4, 16, slot_groups=1)
    for slot, (prompt, pages) in enumerate(zip(PROMPTS, PAGES, strict=True)):
        row = step.add_sequence(prompt, 0, pages, slot, others=[[90 + slot]])
        step.add_sample(row + len(prompt) - 1, params, seed=slot, relay=True)
    executable.run(step)
    step.clear()
    for slot, (prompt, pages) in enumerate(zip(PROMPTS, PAGES, strict=True)):
        row = step.add_sequence([-1], len(prompt), pages, slot, STEPS - 1, [[90 + slot]])
        step.add_sample(row, params, seed=slot, relay=True)
    return executable, step


def run(llm: LLM, ends: list[list[int]], *, native: bool) -> tuple[list[StepOutput], StepDescriptor]:
    executable, step = start(llm)
    if native:
        burst = executable.burst(STEPS, ends)
        assert isinstance(burst, NativeBurst)
        executable.run_burst(step, burst)
    else:
        burst = Burst(STEPS, ends)
        executable.run_burst(step, burst)
    done, over = burst.progress
    assert over
    return [burst.output(i) for i in range(done)], step


def same(a: list[StepOutput], b: list[StepOutput]) -> bool:
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(np.array_equal(x, y) for p, q in pairs for x, y in zip(p, q, strict=True))


def test_it_is_its_steps_one_by_one(llm: LLM) -> None:
    one_by_one, step = run(llm, [[], [], []], native=False)
    at_once, rewritten = run(llm, [[], [], []], native=True)
    assert len(at_once) == STEPS
    assert same(at_once, one_by_one)
    assert np.array_equal(rewritten.buffer, step.buffer)
    assert rewritten.slot_of(1).tolist() == [90, 91, 92]
    assert len({int(out.tokens[0]) for out in at_once}) > 3, "a drawn text, not one token again and again"


@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_a_sequence_that_ends_ends_it(llm: LLM, sequence: int) -> None:
    whole, _ = run(llm, [[], [], []], native=False)
    drawn = [int(out.tokens[sequence]) for out in whole]
    at = next(i for i in range(3, STEPS) if drawn[i] not in drawn[:i])
    ends: list[list[int]] = [[], [], []]
    ends[sequence] = [300, drawn[at]]
    others = {int(out.tokens[i]) for out in whole[:at] for i in range(3) if i != sequence}
    for i in {0, 1, 2} - {sequence}:  # tokens of another sequence end nothing here
        ends[i] = [t for t in drawn[: at + 1] if t not in others | {int(whole[at].tokens[i])}]
    for native in (False, True):
        assert same(run(llm, ends, native=native)[0], whole[: at + 1])


def test_a_stop_is_heard_after_the_step_that_runs(llm: LLM) -> None:
    executable, step = start(llm)
    burst = executable.burst(STEPS, [[], [], []])
    burst.stop()
    executable.run_burst(step, burst)
    assert burst.progress == (1, True)


def test_logits_that_are_not_finite_end_it(tmp_path: Path) -> None:
    with LLM(write_poisoned_model(tmp_path, token=PROMPTS[0][0]), threads=2, kv_cache_gb=0.01) as llm:
        for native in (False, True):
            outputs, _ = run(llm, [[], [], []], native=native)
            assert [out.drawn.tolist() for out in outputs] == [[False, True, True]]


def test_who_waits_is_woken_by_the_end_of_a_run_that_failed(llm: LLM) -> None:
    for burst in (llm.engine.runner.executable.burst(4, [[]]), Burst(4, [[]])):
        burst.abandon()
        burst.wait(0)
        assert burst.progress == (0, True)
