"""The floor told of each step is the ledger's of the step that ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from drut import LLM, AsyncEngine, SamplingParams
from drut.engine.engine import Engine
from drut.engine.service.messages import SetRoof
from drut.engine.step.meter import FIRST, SAMPLED
from drut.kernels.cost import StepShape
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.roofline import StepRoofline
from drut.observe.ledger import Macs, Peaks, interpolated
from tests.engine.models import write_bytes_model
from tests.engine.testbed import FakeExecutable, finish_all, make_engine, submit, text

READ = {1 << 10: 4e9, 1 << 14: 1e9}
PEAKS = Peaks(partial(interpolated, READ), Macs(int4=4e9, int8=3e9, floats=1e9))


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(write_bytes_model(tmp_path_factory.mktemp("floor")), threads=1, overlap=False) as opened:
        yield opened


def observed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[list[StepShape], list[StepShape]]:
    """Shapes of the steps that ran, by their descriptors, and as the work says that was metered."""
    executable, add = engine.runner.executable, engine.meter.add
    assert isinstance(executable, FakeExecutable)
    run, ran, told = executable.launch, [], []

    def noted(descriptor: StepDescriptor, host: object = None):
        ran.append(descriptor.shape())
        return run(descriptor)

    def metered(work, steps, seconds):
        told.extend(StepShape.of(work, later) for later in range(steps))
        add(work, steps, seconds)

    monkeypatch.setattr(executable, "launch", noted)
    monkeypatch.setattr(engine.meter, "add", metered)
    return ran, told


@pytest.mark.parametrize(("overlap", "burst"), [(False, 1), (True, 1), (True, 8)])
def test_the_shape_is_that_of_the_step_that_ran(overlap: bool, burst: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(overlap=overlap, burst=burst)
    ran, told = observed(engine, monkeypatch)
    for i, length in enumerate((3, 40, 17)):
        submit(engine, text(i, length), max_tokens=20, prompt_logprobs=2 if i == 1 else None)
    finish_all(engine)
    assert len(ran) > 20
    assert told == ran


def test_floors_are_added_up_from_when_the_roof_is_known(llm: LLM) -> None:
    engine, meter, params = llm.engine, llm.engine.meter, SamplingParams(max_tokens=4, ignore_eos=True, temperature=0)
    llm.generate("before", params)
    assert meter.floor_seconds is None
    engine.meter.compare(PEAKS)
    assert meter.floor_seconds == 0.0
    floor, shapes = StepRoofline(engine.runner.plan.ops, PEAKS), []
    llm.submit("a prompt", params)
    while engine.busy:
        engine.step()
        shapes.append(engine.runner.last_shape)
    assert meter.floor_seconds == pytest.approx(sum(map(floor.seconds, shapes)))


@pytest.mark.parametrize("process", [False, True])
def test_stats_tell_them_across_the_boundary(llm: LLM, tmp_path: Path, process: bool) -> None:
    async def main() -> float | None:
        async with AsyncEngine(write_bytes_model(tmp_path), process=process, threads=1, multi_step=1) as engine:
            assert (await engine.stats()).floor_seconds is None
            engine.compare_with(SetRoof(READ, PEAKS.macs))
            async for _ in engine.generate([1], SamplingParams(max_tokens=2, ignore_eos=True, temperature=0)):
                pass
            return (await engine.stats()).floor_seconds

    floor = StepRoofline(llm.engine.runner.plan.ops, PEAKS)
    assert asyncio.run(main()) == pytest.approx(sum(floor.seconds(StepShape(1, 1, n, n)) for n in (1, 2)))


def test_of_decoding_steps_some_correct_the_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, seen = make_engine(), []
    predictor = engine.scheduler.pacer.predictor
    monkeypatch.setattr(predictor, "observe", lambda shape, seconds: seen.append(shape))
    submit(engine, text(0, 70), max_tokens=FIRST + 4 * SAMPLED, ignore_eos=True)
    finish_all(engine)
    assert len(seen) == FIRST + 4
    submit(engine, text(1, 150), max_tokens=1)
    finish_all(engine)
    assert sum(shape.rows for shape in seen[FIRST + 4 :]) == 150, "all steps with prompts count"
