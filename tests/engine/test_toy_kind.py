"""A recurrent layer the package does not know: mixer, operation, layout and cache kind are all defined in tests.

Its state is a running sum a sequence, in a slot that no position has a part in. However rows are batched, cut into
chunks or computed again, a request has the bits that it has alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from drut import SamplingParams
from drut.cache.kinds import KINDS, Kinds
from drut.config import EngineConfig
from drut.engine.build import build_engine
from drut.engine.engine import Engine
from drut.engine.request.request import Request
from drut.errors import UnsupportedError
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.numpy.operations.table import OPERATIONS
from drut.kernels.numpy.state import NumpyState, Run
from drut.kernels.ops import Buffer, Op
from drut.model.decoder import kv_layouts
from drut.model.mixers.attention import AttentionMixer
from drut.model.model import ModelFiles, open_model
from drut.model.part import CacheUse, Mixer, Outline, Scope, Shapes
from drut.model.rules import Rules
from drut.model.spec import check
from tests.cache.slots import SlotGroup
from tests.engine.chance import ChancePreemption
from tests.golden.weights import write_checkpoint


@dataclass(frozen=True)
class SumLayout:
    """A slot: a float32 vector of `width` for each of the group's layers."""

    layers: int
    width: int
    group: int
    members: tuple[int, ...]
    kind = "sum"
    by_sequence = True
    window = token_bytes = 0

    @property
    def page_bytes(self) -> int:
        return self.layers * self.width * 4


@dataclass(frozen=True)
class SumUse(CacheUse):
    width: int
    reach = 0

    def layout(self, dtype: str, group: int, members: tuple[int, ...]) -> SumLayout:
        return SumLayout(len(members), self.width, group, members)


@dataclass(frozen=True)
class Accumulate(Op):
    """out[row] = state = state / 2 + x[row], row after row of a sequence; before position 0 the state is 0."""

    layer: int
    x: Buffer
    out: Buffer
    layout: SumLayout


def accumulate(op: Accumulate, state: NumpyState, step: StepDescriptor) -> None:
    kept = state.pools[op.layout.group].view(np.float32).reshape(-1, op.layout.layers, op.layout.width)
    place, group = op.layout.members.index(op.layer), op.layout.group
    out = state.get(op.x).copy()
    for row, (seq, position) in enumerate(zip(step["seq"][: step.rows], step["position"], strict=False)):
        slot = step.slot_of(group)[seq]
        if position:
            out[row] += kept[slot, place] / 2
        kept[slot, place] = out[row]
    state.set(op.out, out)


@dataclass(frozen=True)
class Sum(Mixer):
    before: AttentionMixer  # whose tensors are stored; `o` of them is used
    kind = "sum"

    def shapes(self, hidden: int) -> Shapes:
        return self.before.shapes(hidden)

    def check(self, rules: Rules) -> None:
        rules.demand(self.before.q_width % 32 == 0, "its width is odd")

    def cache_use(self) -> SumUse:
        return SumUse(self.before.q_width)

    def record(self, scope: Scope) -> Buffer:
        assert isinstance(scope.kv, SumLayout)
        y, out = scope.normed(scope.x, "attn_norm"), Buffer("mixed", self.before.q_width)
        scope.recorder.add(Accumulate(scope.index, y, out, scope.kv))
        return out

    def outline(self) -> Outline:
        return Outline(self.kind)


TABLE: Mapping[type[Op], Run] = {**OPERATIONS, Accumulate: accumulate}
TOY: Kinds = {**KINDS, "sum": lambda layout, step: SlotGroup()}
PROMPTS = ([1, 2, 3, 4], [9] * 40, [7, 5, 6] * 15, [9] * 33 + [8])


def toy(directory: Path, sums: Sequence[int]) -> ModelFiles:
    """A checkpoint of which these layers are sums."""
    files = open_model(write_checkpoint("llama_tied", directory / "llama_tied"))
    layers = [replace(layer, mixer=Sum(layer.mixer)) if i in sums and isinstance(layer.mixer, AttentionMixer) else layer
              for i, layer in enumerate(files.spec.layers)]
    return replace(files, spec=check(replace(files.spec, layers=tuple(layers)), "toy"))


def engine_of(files: ModelFiles, **settings: object) -> Engine:
    config = EngineConfig(backend="numpy", kv_dtype="fp32", debug_kv=True, **settings)  # type: ignore[arg-type]
    return build_engine(files, NumpyBackend(TABLE), config, None, kinds=TOY)


Said = list[tuple[int, float]]  # tokens with their logprobs


def answers(engine: Engine, prompts: Sequence[Sequence[int]], tokens: int = 12) -> list[Said]:
    params = SamplingParams(max_tokens=tokens, temperature=1.0, seed=3, ignore_eos=True, logprobs=0)
    requests = [engine.submit(prompt, params)[0] for prompt in prompts]
    said: dict[Request, Said] = {request: [] for request in requests}
    while engine.busy:
        for update in engine.step():
            if update.token is not None:
                assert update.scored is not None
                said[update.request].append((update.token, update.scored.logprob))
    engine.check_idle()
    assert all(r.cached_tokens == 0 for r in requests), "of a prefix there is no state"
    return list(said.values())


@cache
def alone(directory: Path, sums: tuple[int, ...]) -> list[Said]:
    """Each prompt in an engine of its own, whole."""
    said = []
    for prompt in PROMPTS:
        engine = engine_of(toy(directory, sums), chunk_tokens=0, overlap=False, max_seqs=1)
        said += answers(engine, [prompt])
        engine.close()
    return said


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("toy_kind")


MIXED, ONLY = (1,), (0, 1)  # one layer of two, and both: then no group has pages


@pytest.mark.parametrize("sums", [MIXED, ONLY])
@pytest.mark.parametrize("settings", [
    {"overlap": False, "max_seqs": 4}, {"multi_step": 4, "max_seqs": 4}, {"chunk_tokens": 5, "max_seqs": 3},
    {"max_seqs": 2, "multi_step": 1, "chunk_tokens": 7}])
def test_a_request_has_the_bits_that_it_has_alone(directory: Path, sums: tuple[int, ...],
                                                  settings: dict[str, object]) -> None:
    engine = engine_of(toy(directory, sums), **settings)
    assert [kind.pool.total for kind in engine.cache.kinds][-1] == settings["max_seqs"], "a slot a sequence, no more"
    assert (answers(engine, PROMPTS), answers(engine, PROMPTS[1:])) == (alone(directory, sums),
                                                                         alone(directory, sums)[1:])
    assert not any(engine.scheduler.preemptions.values())
    assert engine.cache.kinds[-1].pool.free == settings["max_seqs"]
    engine.close()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("sums", [MIXED, ONLY])
def test_a_preempted_request_begins_anew(directory: Path, sums: tuple[int, ...], overlap: bool) -> None:
    engine = engine_of(toy(directory, sums), overlap=overlap, chunk_tokens=9, max_seqs=3)
    engine.scheduler.policy = ChancePreemption(engine.scheduler.policy, 0.2)
    assert answers(engine, PROMPTS) == alone(directory, sums)
    assert engine.preemptions > 3
    engine.close()


def test_pages_that_run_out_take_the_slot_along(directory: Path) -> None:
    files, prompts = toy(directory, MIXED), [[1, 2], [3, 4], [5, 6]]
    full, slots = kv_layouts(files.spec, "fp32")
    scarce = engine_of(files, kv_cache_gb=(5 * full.page_bytes + 4 * slots.page_bytes + 99) / 1e9, max_seqs=4)
    assert [pool.total for pool in scarce.cache.pools] == [5, 4]
    plenty = engine_of(files, max_seqs=1)
    assert answers(scarce, prompts, 40) == answers(plenty, prompts, 40)
    assert scarce.scheduler.preemptions["pages"]
    for engine in (scarce, plenty):
        engine.close()


def test_the_state_matters(directory: Path) -> None:
    """A sum that forgot what came before would bring other tokens."""
    forgets = {**TABLE, Accumulate: lambda op, state, step: state.set(op.out, state.get(op.x))}
    config = EngineConfig(backend="numpy", kv_dtype="fp32")
    engine = build_engine(toy(directory, MIXED), NumpyBackend(forgets), config, None, kinds=TOY)
    assert answers(engine, PROMPTS) != alone(directory, MIXED)
    engine.close()


def test_it_takes_no_drafter(directory: Path) -> None:
    with pytest.raises(UnsupportedError, match="cannot be rewound"):
        engine_of(toy(directory, MIXED), speculate="ngram")


def test_the_longest_sequence_is_bounded_by_the_context_alone(directory: Path) -> None:
    engine = engine_of(toy(directory, ONLY), max_seqs=2)
    assert engine.room == engine.context
    assert engine.cache.groups[0].room(1) == math.inf
    engine.close()
