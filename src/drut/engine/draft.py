"""Opens and loads the drafters that have weights, into the target's backend and cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from drut.cache.cache import KvCache
from drut.config import EngineConfig
from drut.engine.memory_plan import DraftPlan, MemoryPlan
from drut.kernels.backend import Backend, BackendLimits
from drut.kernels.fusion import fused
from drut.kernels.plan import Plan
from drut.kernels.predictor import Predictor
from drut.model import decoder
from drut.model.model import open_model
from drut.model.packs import PackCache
from drut.model.part import norm
from drut.model.spec import ModelSpec
from drut.model.store import resolve
from drut.model.tokenizer import Tokenizer
from drut.model.weights.loader import Weights
from drut.speculate import eagle3, medusa
from drut.speculate.checkpoint import open_heads
from drut.speculate.draft_model import DrafterLimits, DraftModel
from drut.speculate.drafter import ModelDrafter
from drut.speculate.methods import chosen_method
from drut.speculate.vocabulary import check_same_ids


class DraftTarget(NamedTuple):
    """The model that verifies, with packed weights."""

    spec: ModelSpec
    weights: Weights


class DraftPlace(NamedTuple):
    """Where a drafter runs: the parts of its engine."""

    needs: MemoryPlan
    backend: Backend
    config: EngineConfig
    cache: KvCache
    target: Predictor


class OpenDrafter(ABC):
    """The open files of a drafter. `taps`: the layers of the target whose output it reads."""

    path: Path
    taps: tuple[int, ...] = ()

    @abstractmethod
    def plan(self, context: int, kv_dtype: str) -> DraftPlan:
        """Returns its sizes for sequences up to `context` tokens."""

    @abstractmethod
    def load(self, backend: Backend, target: DraftTarget, packs: PackCache | None) -> None:
        """Packs its weights and closes the files."""

    @abstractmethod
    def make(self, place: DraftPlace) -> ModelDrafter:
        """Returns the drafter, after `load`. Its pools are the last ones of the cache."""

    @abstractmethod
    def close(self) -> None: ...


class OpenDraftModel(OpenDrafter):
    """A draft model. Raises RequestError if its token ids are not those of the target."""

    def __init__(self, path: Path, tokenizer: Tokenizer | None) -> None:
        self.path, self._files = path, open_model(path)
        try:
            self._files.check()
            check_same_ids(tokenizer, self._files.tokenizer(), path.name)
        except BaseException:
            self.close()
            raise
        self._weights: Weights | None = None

    def _spec(self, context: int) -> ModelSpec:
        return self._files.spec.within(min(self._files.spec.context, context))

    def plan(self, context: int, kv_dtype: str) -> DraftPlan:
        spec = self._spec(context)
        return DraftPlan(spec.vocab, tuple(decoder.kv_layouts(spec, kv_dtype, windows=False)))

    def load(self, backend: Backend, target: DraftTarget, packs: PackCache | None) -> None:
        self._weights = self._files.load(backend, packs=packs)
        self.close()

    def make(self, place: DraftPlace) -> ModelDrafter:
        needs, backend, draft = place.needs, place.backend, place.needs.draft
        assert draft is not None
        assert self._weights is not None
        spec = self._spec(needs.context)
        plan = decoder.record(spec, self._weights, draft.layouts)
        plan = fused(plan, backend.fusions if place.config.fusion else ())
        groups = range(len(needs.layouts), len(needs.all_layouts))
        limits = DrafterLimits(needs.limits.tokens, needs.limits.seqs, spec.context)
        executable = backend.load(plan, [place.cache.pools[i].memory for i in groups],
                                  BackendLimits(limits.rows, limits.seqs, limits.seqs))
        return DraftModel(executable, place.cache, groups, limits, predictor=Predictor(plan), target=place.target)

    def close(self) -> None:
        self._files.close()


class OpenMedusa(OpenDrafter):
    """Medusa heads of a target with `spec`."""

    def __init__(self, path: Path, spec: ModelSpec, config: EngineConfig) -> None:
        self.path, self._spec, self._files = path, spec, open_heads(path)
        self._heads = medusa.heads_of(self._files)
        self.taps = (len(spec.layers) - 1,)
        self._plans: list[Plan] = []

    def plan(self, context: int, kv_dtype: str) -> DraftPlan:
        return DraftPlan(self._spec.vocab)

    def load(self, backend: Backend, target: DraftTarget, packs: PackCache | None) -> None:
        final = norm(target.spec, target.weights, "final_norm")
        head = target.weights.matrix("embed" if target.spec.tied_head else "head")
        self._plans = [medusa.record(self._files, each, backend, target.spec.hidden, final, head)
                       for each in self._heads]
        self.close()

    def make(self, place: DraftPlace) -> ModelDrafter:
        return medusa.Medusa(place.backend, self._plans, self._spec.hidden, place.needs.limits.seqs)

    def close(self) -> None:
        self._files.close()


class OpenEagle3(OpenDrafter):
    """An EAGLE-3 drafter of a target with `spec`."""

    def __init__(self, path: Path, spec: ModelSpec, config: EngineConfig) -> None:
        self._kv_dtype = config.kv_dtype
        self.path, self._target, self._files = path, spec, open_heads(path)
        self._spec = eagle3.spec_of(self._files, spec)
        self._ids = eagle3.target_ids(self._files, spec)
        self.taps = self._spec.taps
        self._plan: Plan | None = None

    def plan(self, context: int, kv_dtype: str) -> DraftPlan:
        return DraftPlan(len(self._ids), (eagle3.layout(self._spec, kv_dtype),))

    def load(self, backend: Backend, target: DraftTarget, packs: PackCache | None) -> None:
        self._plan = eagle3.record(self._files, self._spec, backend, target.spec, target.weights.matrix("embed"),
                                   self._kv_dtype)
        self.close()

    def make(self, place: DraftPlace) -> ModelDrafter:
        needs = place.needs
        plan, groups = self._plan, range(len(needs.layouts), len(needs.all_layouts))
        assert plan is not None
        limits = DrafterLimits(needs.limits.tokens, needs.limits.seqs, needs.context)
        executable = place.backend.load(plan, [place.cache.pools[i].memory for i in groups],
                                        BackendLimits(limits.rows, limits.seqs, limits.seqs))
        return eagle3.Eagle3(executable, place.cache, groups, limits, predictor=Predictor(plan), target=place.target,
                             at=eagle3.buffers(self._spec, self._target), ids=self._ids)

    def close(self) -> None:
        self._files.close()


HEADS: Mapping[str, Callable[[Path, ModelSpec, EngineConfig], OpenDrafter]] = {
    "medusa": OpenMedusa, "eagle3": OpenEagle3}


def open_drafter(config: EngineConfig, spec: ModelSpec, tokenizer: Tokenizer | None, *,
                 locate: Callable[[str], Path | None] = resolve) -> OpenDrafter | None:
    """Opens the drafter of the settings for a target with `spec`; None if it has no weights, or if `locate` does not
    find them."""
    chosen = chosen_method(config.speculate)
    if chosen is None or "model" not in chosen.files:
        return None
    heads, name = HEADS.get(chosen.method), chosen.files["model"]
    if heads is not None and Path(name).is_dir():  # its files need not have the names of a model's
        return heads(Path(name), spec, config)
    path = locate(name)
    if path is None:
        return None
    return OpenDraftModel(path, tokenizer) if heads is None else heads(path, spec, config)
