"""What is known of a flight is what was read of it, whatever its burst has done since."""

from __future__ import annotations

from concurrent.futures import Future

from drut.engine.request.params import SamplingParams
from drut.engine.request.request import Request
from drut.engine.schedule.work import ScheduledRequest
from drut.engine.step.inflight import FinishedStep, InflightStep
from drut.kernels.burst import Burst, BurstProgress
from drut.kernels.output import StepOutput
from tests.engine.testbed import make_engine


class Hasty(Burst):
    """A burst that advances by one word of `says` at each call."""

    def __init__(self, steps: int, says: list[BurstProgress]) -> None:
        super().__init__(steps, [[]])
        self.says = says

    @property
    def progress(self) -> BurstProgress:
        return self.says.pop(0) if len(self.says) > 1 else self.says[0]

    def output(self, step: int) -> StepOutput:
        return StepOutput.zeros(1)


def a_request() -> Request:
    return make_engine().submit([1, 2], SamplingParams(temperature=0))[0]


def flight(burst: Burst) -> InflightStep:
    done = Future[FinishedStep]()
    done.set_result(FinishedStep(None, 0.0))
    return InflightStep([ScheduledRequest(request=a_request(), start=0, rows=1, draws=1, scores=0, epoch=0,
                                          ahead=burst.steps - 1)], done, burst)


def test_a_burst_that_ends_while_it_is_read_is_open_until_its_last_step_was_read() -> None:
    one = flight(Hasty(8, [BurstProgress(3, False), BurstProgress(4, True)]))
    assert len(list(one.outputs())) == 3
    assert not one.complete
    assert one.length_unknown
    assert len(list(one.outputs())) == 1
    assert one.complete
    assert not one.length_unknown


def test_of_a_burst_that_has_not_ended_one_more_step_is_certain() -> None:
    one = flight(Hasty(4, [BurstProgress(3, False), BurstProgress(4, True)]))
    assert len(list(one.outputs())) == 3
    assert not one.length_unknown
    assert not one.complete
