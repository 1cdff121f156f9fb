"""A tap is the residual stream behind its layer, no layer sooner or later, and taps change nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drut.config import EngineConfig
from drut.engine.build import choose_backend
from drut.engine.request.params import FilledParams
from drut.errors import RequestError
from drut.kernels.backend import Backend, BackendLimits
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.fusion import fused
from drut.kernels.ops import F32, Buffer
from drut.kernels.plan import Plan
from drut.model import decoder
from drut.model.model import open_model
from tests.golden.weights import write_checkpoint
from tests.kernels.test_plans_in_turns import BACKENDS

ROWS = 21


def run(backend: Backend, plan: Plan, layouts: list, buffer: Buffer) -> tuple[F32, list[int]]:
    """The rows of a buffer, and the tokens drawn, of one step with two sequences."""
    pools = [backend.pool(kv, 5) for kv in layouts]
    executable = backend.load(fused(plan, backend.fusions), pools, BackendLimits(32, 2, 2))
    step = StepDescriptor(32, 2, 2, 8 * len(layouts), groups=len(layouts))
    for slot, count in enumerate((17, ROWS - 17)):
        pages = [2 * slot, 2 * slot + 1]
        row = step.add_sequence([(7 * i + slot) % 50 for i in range(count)], 0, pages, slot,
                                others=[pages] * (len(layouts) - 1))
        step.add_sample(row + count - 1, FilledParams(), seed=slot)
    tokens = executable.run(step).tokens.tolist()
    return executable.rows(buffer, ROWS).copy(), tokens


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["gemma2", "qwen3_gqa", "gpt_oss"])
def test_a_tap_is_the_output_of_its_layer(name: str, backend: str, tmp_path: Path) -> None:
    files = open_model(write_checkpoint(name, tmp_path / name))
    kernels = choose_backend(EngineConfig(backend=backend, threads=2))
    spec, weights = files.spec, files.load(kernels)
    layouts = decoder.kv_layouts(spec, "bf16")
    layers = len(spec.layers)
    taps = [layers - 1, 0, -1]
    got, tokens = run(kernels, decoder.record(spec, weights, layouts, taps), layouts, decoder.tapped(spec, taps))
    x = Buffer("x", spec.hidden)
    for place, layer in enumerate(taps):  # what a model of only these layers has before its head
        shorter = decoder.record(replace(spec, layers=spec.layers[: layer + 1]), weights, layouts)
        wanted, drawn = run(kernels, shorter, layouts, x)
        assert np.array_equal(got[:, place * spec.hidden :][:, : spec.hidden], wanted), layer
        if layer == layers - 1:
            assert drawn == tokens
    kernels.close()


def test_a_layer_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    files = open_model(write_checkpoint("gemma2", tmp_path / "gemma2"))
    weights = files.load(choose_backend(EngineConfig(backend="numpy")))
    with pytest.raises(RequestError, match=r"taps \[0, 3\] of a model with layers 0 to 2"):
        decoder.record(files.spec, weights, decoder.kv_layouts(files.spec, "bf16"), [0, 3])
