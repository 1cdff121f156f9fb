"""The memory plan: the sizes that a start needs, computed before weights are read. Engine, dry run and planner use
it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from drut.cache.groups import KvGroup
from drut.cache.kinds import KINDS, Kinds
from drut.config import EngineConfig
from drut.engine.memory import make_groups, pool_pages
from drut.engine.schedule.work import StepLimits
from drut.errors import RequestError
from drut.kernels.kv import CacheLayout
from drut.model import decoder
from drut.model.spec import ModelSpec
from drut.speculate.methods import chosen_method


@dataclass(frozen=True)
class DraftPlan:
    """The sizes of a drafter that has weights. Its KV groups follow those of the target in the cache; the groups of
    `layouts` are numbered from 0. All keep the whole context: the drafter may be far behind the target's window."""

    vocab: int
    layouts: tuple[CacheLayout, ...] = ()
    groups: tuple[KvGroup, ...] = ()
    pages: tuple[int, ...] = ()


@dataclass(frozen=True)
class MemoryPlan:
    """The sizes of an engine. `spec` is for sequences up to `context` tokens; `layouts`, `groups` and `pages` are by KV
    group, the widest window first; `draft` has those of the drafter."""

    spec: ModelSpec
    context: int
    limits: StepLimits  # maximum size of a step
    layouts: tuple[CacheLayout, ...]
    groups: tuple[KvGroup, ...]
    pages: tuple[int, ...]
    draft: DraftPlan | None = None

    @classmethod
    def of(cls, spec: ModelSpec, config: EngineConfig, kinds: Kinds = KINDS,
           draft: Callable[[int, str], DraftPlan] | None = None) -> Self:
        """Returns the plan for a model and settings. `kinds`: the cache kinds that layouts may name; `draft`: returns
        the drafter's sizes for a context and a KV format. Raises RequestError if the settings exceed the context or
        the memory."""
        context = context_of(spec, config)
        limits = step_limits(config, context)
        spec = spec.within(context)
        layouts = decoder.kv_layouts(spec, config.kv_dtype, context=context, windows=config.window_pages)
        drafter = draft(context, config.kv_dtype) if draft is not None else None
        every = [*layouts, *(drafter.layouts if drafter is not None else ())]
        groups = make_groups(every, limits.tokens, kinds)
        pages, own = pool_pages(every, groups, context, config), len(layouts)
        if drafter is not None:
            drafter = replace(drafter, groups=tuple(groups[own:]), pages=tuple(pages[own:]))
        return cls(spec=spec, context=context, limits=limits, layouts=tuple(layouts), groups=tuple(groups[:own]),
                   pages=tuple(pages[:own]), draft=drafter)

    @property
    def all_layouts(self) -> tuple[CacheLayout, ...]:
        """The layouts of the cache's groups, the drafter's last."""
        return (*self.layouts, *(self.draft.layouts if self.draft is not None else ()))

    @property
    def all_groups(self) -> tuple[KvGroup, ...]:
        return (*self.groups, *(self.draft.groups if self.draft is not None else ()))

    @property
    def all_pages(self) -> tuple[int, ...]:
        return (*self.pages, *(self.draft.pages if self.draft is not None else ()))

    @property
    def room(self) -> int:
        """The maximum number of tokens of a prompt and its output together: the context, or less if the pages hold
        less."""
        rooms = (group.room(pages) for group, pages in zip(self.all_groups, self.all_pages, strict=True))
        return int(min(self.context, *rooms))

    @property
    def kv_bytes(self) -> int:
        return sum(kv.page_bytes * pages for kv, pages in zip(self.all_layouts, self.all_pages, strict=True))

    @property
    def logits_bytes(self) -> int:
        """The bytes of the float32 logits of a step's samples, and of a step of the drafter."""
        drafter = self.limits.seqs * self.draft.vocab if self.draft is not None else 0
        return 4 * (self.limits.samples * self.spec.vocab + drafter)


def context_of(spec: ModelSpec, config: EngineConfig) -> int:
    """Returns the maximum length of a sequence: the model's context, or less by the settings. Raises RequestError for
    more."""
    if config.max_model_len is not None and config.max_model_len > spec.context:
        raise RequestError(f"max_model_len {config.max_model_len} is more than the model's context of {spec.context}")
    return config.max_model_len or spec.context


def step_limits(config: EngineConfig, context: int) -> StepLimits:
    """Returns the maximum size of a step. If prompts are not chunked, the longest one fits. With speculation each draft
    is a sample, too."""
    tokens = max(config.max_batch_tokens, config.max_seqs, context if config.chunk_tokens == 0 else 0)
    chosen = chosen_method(config.speculate)
    samples = min(tokens, config.max_seqs * (1 + chosen.max_drafts)) if chosen is not None else config.max_seqs
    bursts = config.overlap and not (chosen is not None and chosen.every_row)
    return StepLimits(config.max_seqs, tokens, samples, config.chunk_tokens, config.multi_step if bursts else 1)
