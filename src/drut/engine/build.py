"""Builds an engine from settings and the files of a model."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from itertools import zip_longest

from drut.cache.cache import KvCache
from drut.cache.kinds import KINDS, Kinds
from drut.cache.pool import Canary, PagePool
from drut.config import EngineConfig
from drut.constrain.grammar_compiler import GrammarCompiler
from drut.engine.draft import DraftPlace, DraftTarget, open_drafter
from drut.engine.engine import Engine
from drut.engine.memory_plan import MemoryPlan, context_of
from drut.engine.request.defaults import model_defaults
from drut.engine.request.params import NEUTRAL
from drut.engine.schedule.policy import make_policy
from drut.engine.schedule.prefill_pacer import PrefillPacer
from drut.engine.schedule.reserve import Reserve
from drut.engine.schedule.scheduler import Scheduler
from drut.engine.schedule.static_batching import StaticBatching
from drut.engine.step.runner import Runner
from drut.engine.step.speculation import Speculation
from drut.errors import UnsupportedError
from drut.home import home
from drut.kernels.backend import Backend
from drut.kernels.fusion import fused
from drut.kernels.native import library
from drut.kernels.plan import Plan
from drut.kernels.predictor import Predictor
from drut.machine import usable_cpus
from drut.model import decoder
from drut.model.model import ModelFiles
from drut.model.packs import PackCache
from drut.model.store import model_digest
from drut.model.tokenizer import Tokenizer
from drut.model.weights.loader import Weights
from drut.observe.laps import Laps
from drut.speculate.controller import SpeculationController
from drut.speculate.drafter import ModelDrafter
from drut.speculate.methods import chosen_method

NUMERICS_VERSION = 2

NO_NATIVE = (
    "drut: computing with NumPy, many times slower than the native kernels. To get them: install a C++17 compiler "
    "(Debian, Ubuntu: apt install g++), then install drut again."
)


def choose_backend(config: EngineConfig) -> Backend:
    """Returns the backend of the settings. Warns if NumPy replaces native kernels that were not built."""
    threads = config.threads or len(usable_cpus())
    if config.backend != "numpy":
        if library.load() is not None:
            from drut.kernels.native.backend import NativeBackend

            return NativeBackend(threads, config.isa, config.execution)
        if config.backend == "native":
            raise UnsupportedError("backend native: the package was built without a C++ compiler")
        warnings.warn(NO_NATIVE, stacklevel=2)
    from drut.kernels.numpy.backend import NumpyBackend

    return NumpyBackend()


def build_engine(files: ModelFiles, backend: Backend, config: EngineConfig, tokenizer: Tokenizer | None,
                 laps: Laps | None = None, kinds: Kinds = KINDS) -> Engine:
    """Loads the weights, makes the page pools and records the plan. `laps` measures each; `kinds`: the cache kinds that
    the model's mixers may name."""
    laps = Laps() if laps is None else laps
    drafting = open_drafter(config, files.spec, tokenizer)
    weights = files.load(backend, packs=pack_cache(config))
    if drafting is not None:
        drafting.load(backend, DraftTarget(files.spec, weights), pack_cache(config))
    laps.lap("weights")
    needs = MemoryPlan.of(files.spec, config, kinds, drafting.plan if drafting is not None else None)
    spec, context, limits, layouts = needs.spec, needs.context, needs.limits, needs.layouts
    memory = [backend.pool(kv, pages) for kv, pages in zip(needs.all_layouts, needs.all_pages, strict=True)]
    canaries = [Canary(m, kv.window) for m, kv in zip(memory, layouts, strict=False)] if config.debug_kv else []
    laps.lap("kv pages")
    pools = [PagePool(m, canary) for m, canary in zip_longest(memory, canaries)]
    cache = KvCache(*pools, prefix_cache=config.prefix_cache, groups=needs.all_groups)
    taps = drafting.taps if drafting is not None else ()
    plan = record_plan(needs, weights, backend, config, taps)
    runner = Runner(backend, plan, memory[: len(layouts)], limits, context=context, vocab=spec.vocab,
                    overlap=config.overlap, canaries=canaries, slot_groups=sum(kv.by_sequence for kv in layouts),
                    taps=decoder.tapped(spec, taps) if taps else None)
    pacer = PrefillPacer(Predictor(plan))
    policy = make_policy(config.policy, aging_s=config.aging_s)
    policy = policy if config.continuous_batching else StaticBatching(policy, limits.seqs)
    scheduler = Scheduler(cache, limits, policy, pacer, reserve=Reserve(config.reserve_quantile))
    place = DraftPlace(needs, backend, config, cache, pacer.predictor)
    drafter = drafting.make(place) if drafting is not None else None
    laps.lap("plan")
    eos_ids = tokenizer.eos_ids if tokenizer is not None else frozenset[int]()
    grammars = None
    if tokenizer is not None:
        grammars = GrammarCompiler(tokenizer, spec.vocab, frozenset(i for i in eos_ids if i < spec.vocab),
                                   cache_bytes=int(config.grammar_cache_mb * 1e6), seconds=config.grammar_timeout_s)
    return Engine(runner, scheduler, vocab=spec.vocab, context=context, eos_ids=eos_ids, overlap=config.overlap,
                  forced_tokens=config.forced_tokens, grammars=grammars,
                  speculation=make_speculation(config, spec.vocab, pacer.predictor, drafter),
                  defaults=model_defaults(files) if config.generation_config == "auto" else NEUTRAL)


def make_speculation(config: EngineConfig, vocab: int, predictor: Predictor,
                     model: ModelDrafter | None) -> Speculation | None:
    """Returns the speculation that the settings choose; None for none. `model`: the drafter of a method that runs a
    model."""
    chosen = chosen_method(config.speculate)
    if chosen is None:
        return None
    controller = SpeculationController(predictor, chosen.max_drafts, overlap=config.overlap)
    return Speculation(model or chosen.drafter(), vocab=vocab, max_drafts=chosen.max_drafts,
                       controller=controller if chosen.adaptive else None)


def record_plan(needs: MemoryPlan, weights: Weights, backend: Backend, config: EngineConfig,
                taps: Sequence[int] = ()) -> Plan:
    """Returns the plan that `backend` runs, over loaded weights or over their outline."""
    return fused(decoder.record(needs.spec, weights, needs.layouts, taps), backend.fusions if config.fusion else ())


def pack_cache(config: EngineConfig) -> PackCache | None:
    """Returns the cache of packed weights if the settings enable it."""
    return PackCache(home() / "packs", int(config.pack_cache_gb * 1e9)) if config.pack_cache else None


def numerics_id(files: ModelFiles, backend: Backend, config: EngineConfig) -> str:
    """Returns the numerics id: runs with the same id give the same bits. It covers numerics version, model file,
    encodings, KV format and backend, and whether long-context RoPE scaling is active."""
    encodings = sorted({t.encoding for t in files.source.tensors.values()})
    parts = [str(NUMERICS_VERSION), model_digest(files.path), *encodings, config.kv_dtype, backend.name]
    context = context_of(files.spec, config)
    parts += ["beyond" for rope in files.spec.ropes if rope.long is not None and context > rope.original_context]
    return "drut-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
