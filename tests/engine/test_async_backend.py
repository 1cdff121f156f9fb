"""A backend the package does not know: steps end on a thread of its own, pages lie where only it can read them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from drut import SamplingParams
from drut.config import EngineConfig
from drut.engine.build import build_engine
from drut.kernels.backend import Backend, BackendLimits, Executable, Host
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import KvLayout
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.output import StepOutput
from drut.kernels.pending import Pending
from drut.kernels.plan import Plan
from drut.kernels.pool import HostPool, Pool
from drut.model.model import open_model
from tests.golden.weights import write_checkpoint

PROMPTS = ([1, 2, 3, 4], [9] * 20, [7, 5, 6] * 9)


class FarPool(Pool):
    """Pages that are moved by its methods and in no other way."""

    def __init__(self, far: HostPool) -> None:
        self.far, self.pages, self.page_bytes = far, far.pages, far.page_bytes

    def export(self, pages: Sequence[int]) -> NDArray[np.uint8]:
        return self.far.export(pages)

    def import_(self, pages: Sequence[int], data: NDArray[np.uint8]) -> None:
        self.far.import_(pages, data)

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self.far.copy(sources, targets)


class LatePending(Pending):
    def __init__(self, future: Future[StepOutput]) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self) -> StepOutput:
        return self._future.result()


class LateExecutable(Executable):
    def __init__(self, inner: Executable, queue: ThreadPoolExecutor) -> None:
        self._inner, self._queue = inner, queue
        self.launched = 0

    def launch(self, step: StepDescriptor, host: Host | None = None) -> Pending:
        self.launched += 1
        return LatePending(self._queue.submit(self._inner.run, step, host))

    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        self._queue.submit(self._inner.redraw, step, samples).result()

    def logits(self, count: int) -> NDArray[np.float32]:
        return self._queue.submit(self._inner.logits, count).result()


class LateBackend(NumpyBackend):
    name = "late"

    def __init__(self) -> None:
        super().__init__()
        self._queue = ThreadPoolExecutor(1)

    def pool(self, layout: KvLayout, pages: int) -> Pool:
        inner = super().pool(layout, pages)
        assert isinstance(inner, HostPool)
        return FarPool(inner)

    def load(self, plan: Plan, pools: Sequence[Pool], limits: BackendLimits,
             shared_with: Executable | None = None) -> LateExecutable:
        assert shared_with is None
        return LateExecutable(super().load(plan, [pool.far for pool in pools if isinstance(pool, FarPool)], limits),
                              self._queue)

    def close(self) -> None:
        self._queue.shutdown()


def outputs(backend: Backend, directory: Path, config: EngineConfig) -> list[list[int]]:
    """Tokens of requests that share steps, the last of which begins with pages of the first."""
    engine = build_engine(open_model(directory), backend, config, None)
    executable = engine.runner.executable
    params = SamplingParams(max_tokens=9, temperature=1.0, seed=3, ignore_eos=True, logprobs=1)
    requests = [engine.submit(prompt, params)[0] for prompt in PROMPTS]
    while engine.busy:
        engine.step()
    requests += engine.submit([*PROMPTS[1], 8], params)
    while engine.busy:
        engine.step()
    engine.check_idle()
    assert not isinstance(executable, LateExecutable) or executable.launched >= 12
    engine.close()
    return [request.output_ids for request in requests]


@pytest.mark.parametrize("overlap", [False, True])
def test_it_serves_requests(overlap: bool, tmp_path: Path) -> None:
    """With every page checked before it is read, and poisoned once it is free."""
    directory = write_checkpoint("gemma2", tmp_path / "gemma2")
    config = EngineConfig(kv_dtype="bf16", kv_cache_gb=0.001, debug_kv=True, overlap=overlap)
    assert outputs(LateBackend(), directory, config) == outputs(NumpyBackend(), directory, config)


def test_pages_move_within_a_pool_and_to_the_host() -> None:
    pool = NumpyBackend().pool(KvLayout("fp32", 1, 1, 16), 4)
    data = np.arange(2 * pool.page_bytes, dtype=np.uint8).reshape(2, -1)
    pool.import_([3, 1], data)
    pool.copy([1, 3], [0, 2])
    held = pool.export([0, 1, 2, 3])
    assert np.array_equal(held, data[[1, 1, 0, 0]])
    held[:] = 0
    assert np.array_equal(pool.export([2]), data[:1])
