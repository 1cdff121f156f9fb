"""Several plans over the same pools, whose steps run in turns: each has the bits that it has alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from drut.config import EngineConfig
from drut.engine.build import choose_backend
from drut.engine.request.params import FilledParams
from drut.kernels.backend import Backend, BackendLimits, Executable
from drut.kernels.descriptor import RELAY, StepDescriptor
from drut.kernels.native import library
from drut.kernels.native.executable import NativeExecutable
from drut.kernels.output import StepOutput
from drut.kernels.plan import Plan
from drut.kernels.pool import Pool
from drut.model import decoder
from drut.model.model import open_model
from tests.golden.weights import write_checkpoint

BACKENDS = ["numpy", *(["native"] if library.load() is not None else [])]
PROMPTS = ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3], [8, 4])
PAGES = ((0, 1, 2), (3, 4))
STEPS = 6
LIMITS, WIDER = BackendLimits(32, 4, 2), BackendLimits(64, 8, 2)


class Plans(NamedTuple):
    """Of one model: all of it, its first layer with the head behind, and all of it with another head."""

    backend: Backend
    whole: Plan
    first: Plan
    other: Plan
    layouts: list[object]

    def pools(self) -> list[Pool]:
        return [self.backend.pool(kv, 5) for kv in self.layouts]  # type: ignore[arg-type]


@pytest.fixture(params=BACKENDS)
def plans(request: pytest.FixtureRequest, tmp_path: Path) -> Plans:
    files = open_model(write_checkpoint("gemma2", tmp_path / "gemma2"))
    backend = choose_backend(EngineConfig(backend=request.param, threads=2))
    spec, weights = files.spec, files.load(backend)
    layouts = decoder.kv_layouts(spec, "bf16")
    made = [decoder.record(s, weights, layouts)
            for s in (spec, replace(spec, layers=spec.layers[:1]), replace(spec, logit_scale=0.25, logit_softcap=0.0))]
    return Plans(backend, *made, layouts)  # type: ignore[arg-type]


def outputs(executables: list[Executable], *, relay: bool = False) -> list[list[StepOutput]]:
    """Of each executable its outputs: for each step, all compute the same rows one after another. The prompts' tokens
    are followed by those that the last one draws; with `relay` all take them from where it left them."""
    said: list[list[StepOutput]] = [[] for _ in executables]
    params = FilledParams(temperature=1.0, logprobs=3)
    tokens = [list(prompt) for prompt in PROMPTS]
    for at in range(STEPS):
        for i, executable in enumerate(executables):
            step = StepDescriptor(32, 2, 4, 10 * 2, groups=2)
            for slot, (sequence, pages) in enumerate(zip(tokens, PAGES, strict=True)):
                start = 0 if at == 0 else len(sequence) - 1
                rows = [RELAY] if relay and at else sequence[start:]
                row = step.add_sequence(rows, start, pages, slot, others=[pages])
                step.add_sample(row + len(rows) - 1, params, seed=slot, relay=i == len(executables) - 1)
            said[i].append(StepOutput(*(array.copy() for array in executable.run(step))))
        for sequence, token in zip(tokens, said[-1][-1].tokens.tolist(), strict=True):
            sequence.append(token)
    return said


def same(one: list[StepOutput], other: list[StepOutput]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for x, y in zip(one, other, strict=True)
                                          for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("relay", [False, True])
def test_each_has_the_bits_it_has_alone(plans: Plans, relay: bool) -> None:
    """The last one's tokens go on, so that it alone and beside the others says the same. `first` writes the keys and
    values of its layer again, in the same pages; `other` those of all."""
    pools = plans.pools()
    whole = plans.backend.load(plans.whole, pools, WIDER)
    beside = [plans.backend.load(plan, pools, LIMITS, whole) for plan in (plans.first, plans.other)]
    first, other, of_whole = outputs([*beside, whole], relay=relay)
    (alone,) = outputs([plans.backend.load(plans.whole, plans.pools(), LIMITS)])
    assert same(of_whole, alone)
    for plan, said in ((plans.first, first), (plans.other, other)):
        pools = plans.pools()
        by_itself, _ = outputs([plans.backend.load(plan, pools, LIMITS), plans.backend.load(plans.whole, plans.pools(),
                                                                                           LIMITS)])
        assert same(said, by_itself)
        assert not same(said, alone)


@pytest.mark.skipif("native" not in BACKENDS, reason="the native kernels are not built")
@pytest.mark.parametrize("plans", ["native"], indirect=True)
def test_what_lives_for_a_step_is_shared_where_it_is_large_enough(plans: Plans) -> None:
    pools = plans.pools()
    whole = plans.backend.load(plans.whole, pools, LIMITS)
    first = plans.backend.load(plans.first, pools, LIMITS, whole)
    larger = plans.backend.load(plans.other, pools, WIDER, whole)
    assert isinstance(whole, NativeExecutable)
    assert isinstance(first, NativeExecutable)
    assert isinstance(larger, NativeExecutable)
    common = set(first.workspace.buffers) & set(whole.workspace.buffers)
    assert len(common) > 3
    for buffer in common:
        assert np.shares_memory(first.workspace.buffers[buffer], whole.workspace.buffers[buffer])
        assert not np.shares_memory(larger.workspace.buffers[buffer], whole.workspace.buffers[buffer])
    assert np.shares_memory(first.logits(1), whole.logits(1))
    assert not np.shares_memory(larger.logits(1), whole.logits(1))
