"""Loads the draft model of the settings into the target's backend and cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drut.cache.cache import KvCache
from drut.config import EngineConfig
from drut.engine.memory_plan import MemoryPlan
from drut.kernels.backend import Backend, BackendLimits
from drut.kernels.fusion import fused
from drut.kernels.predictor import Predictor
from drut.model import decoder
from drut.model.model import ModelFiles, open_model
from drut.model.store import resolve
from drut.model.tokenizer import Tokenizer
from drut.model.weights.loader import Weights
from drut.speculate.draft_model import DrafterLimits, DraftModel
from drut.speculate.methods import chosen_method
from drut.speculate.vocabulary import check_same_ids


def open_draft_model(config: EngineConfig, tokenizer: Tokenizer | None, *,
                     locate: Callable[[str], Path | None] = resolve) -> ModelFiles | None:
    """Opens the draft model of the settings; None if they name none, or if `locate` does not find it. Raises
    RequestError if its token ids are not those of `tokenizer`, the target's."""
    chosen = chosen_method(config.speculate)
    path = locate(chosen.files["model"]) if chosen is not None and "model" in chosen.files else None
    if path is None:
        return None
    files = open_model(path)
    try:
        files.check()
        check_same_ids(tokenizer, files.tokenizer(), files.path.name)
    except BaseException:
        files.close()
        raise
    return files


def make_draft_model(needs: MemoryPlan, weights: Weights, backend: Backend, config: EngineConfig, cache: KvCache,
                     target: Predictor) -> DraftModel:
    """Returns the drafter over loaded weights. Its pools are the last ones of `cache`."""
    draft = needs.draft
    assert draft is not None
    plan = fused(decoder.record(draft.spec, weights, draft.layouts), backend.fusions if config.fusion else ())
    groups = range(len(needs.layouts), len(needs.all_layouts))
    limits = DrafterLimits(needs.limits.tokens, needs.limits.seqs, draft.spec.context)
    executable = backend.load(plan, [cache.pools[i].memory for i in groups],
                              BackendLimits(limits.rows, limits.seqs, limits.seqs))
    return DraftModel(executable, cache, groups, limits, predictor=Predictor(plan), target=target)
