"""Without fusion the answers have the same bits: norms of all kinds and places, gates and none, experts, windows."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from drut import LLM, SamplingParams
from drut.config import EngineConfig
from drut.engine.build import build_engine
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.fusion.place import FILLS, access
from drut.kernels.native import library
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.numpy.operations.table import OPERATIONS
from drut.kernels.numpy.state import NumpyState
from drut.kernels.ops import F32, Buffer, Op, Tap
from drut.model.model import open_model
from tests.engine.matrix import text
from tests.engine.models import said
from tests.golden.weights import config, write_checkpoint

KINDS = ("llama_tied", "qwen3_gqa", "gemma2", "cohere2", "olmo3", "gpt_oss", "qwen2_moe", "starcoder2")
NATIVE = [] if library.load() is None else [(kind, "native") for kind in KINDS]


@pytest.mark.parametrize(("kind", "backend"), [*NATIVE, ("llama_tied", "numpy"), ("olmo3", "numpy")])
def test_the_same_bits_without_fusion(kind: str, backend: str, tmp_path: Path) -> None:
    path, vocab = write_checkpoint(kind, tmp_path / kind), config(kind)["vocab_size"]
    prompts = [list(text(seed, length, vocab)) for seed, length in ((1, 40), (2, 3))]
    params = SamplingParams(max_tokens=6, temperature=1.0, seed=3, logprobs=2, ignore_eos=True)
    answers = []
    for fusion in (True, False):
        with LLM(path, backend=backend, fusion=fusion, threads=2) as llm:
            answers.append([said(answer) for answer in llm.generate(prompts, params)])
    assert answers[0] == answers[1]


class Watched(dict[Buffer, F32]):
    """Buffers; notes which are read before they are written, and which are written."""

    def __init__(self, values: dict[Buffer, F32]) -> None:
        super().__init__(values)
        self.reads: set[Buffer] = set()
        self.writes: set[Buffer] = set()

    def __getitem__(self, buffer: Buffer) -> F32:
        if buffer not in self.writes:
            self.reads.add(buffer)
        return super().__getitem__(buffer)

    def __setitem__(self, buffer: Buffer, value: F32) -> None:
        self.writes.add(buffer)
        super().__setitem__(buffer, value)


def test_operations_read_and_write_what_the_rules_of_fusion_assume(tmp_path: Path) -> None:
    """Keys and values may stay in NumPy as they were projected, where kernels norm and turn them in their buffers."""
    ran: set[type[Op]] = set()

    def watched(op: Op, state: NumpyState, step: StepDescriptor) -> None:
        state.values = seen = Watched(state.values)
        OPERATIONS[type(op)](op, state, step)
        assumed = access(op)
        assert seen.reads == assumed.reads, op
        assert assumed.writes >= seen.writes, op
        assert {buffer.name for buffer in assumed.writes - seen.writes} <= {"k", "v"}, op
        ran.add(type(op))

    for kind, fusion in itertools.product(("gemma2", "qwen2_moe"), (True, False)):
        settings = EngineConfig(backend="numpy", fusion=fusion, kv_cache_gb=0.01)
        files = open_model(write_checkpoint(kind, tmp_path / kind))
        engine = build_engine(files, NumpyBackend(dict.fromkeys(OPERATIONS, watched)), settings, None)
        engine.submit([1, 2, 3], SamplingParams(max_tokens=2, ignore_eos=True, temperature=0))
        while engine.busy:
            engine.step()
        engine.close()
    assert ran == FILLS.keys() - {Tap}  # plans have taps for a drafter only: tests/model/test_taps.py
