"""EAGLE-3: one layer over the target's residual streams, which drafts a chain of tokens (arXiv 2503.01840).

Row i reads g_i and the embedding of the token at i + 1, and predicts the token at i + 2. g_i is fc of the taps of row
i; behind the last row of the target it is the layer's own output. The attention reads both side by side, normed, the
embedding first; the residual stream is g_i, or with `norm_before_residual` the normed one.

Logits are over a reduced vocabulary: draft id j is the token j + d2t[j]. Rows of drafts are computed again, with taps,
once the target has verified them.

Hazard: the last row of a page depends on the first token behind the page. If a sequence shares the page and continues
otherwise, it has the row of the sequence that filled the page: its drafts may be worse, never its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.cache.cache import KvCache
from drut.cache.groups import pages_for
from drut.cache.kinds.drafted import DraftedLayout
from drut.errors import UnsupportedError
from drut.kernels.backend import Backend, Executable
from drut.kernels.numpy.sampling import gumbel, kept_ids
from drut.kernels.ops import F32, Add, Buffer, Embed, Head, Norm, Normalize, Project, RopeTable, Sample, Tap
from drut.kernels.plan import Plan, Recorder
from drut.kernels.predictor import Predictor
from drut.kernels.weight import Matrix
from drut.model.families.llama import from_hf
from drut.model.mixers.attention import AttentionMixer
from drut.model.part import Scope, rope_buffer
from drut.model.residual import add_back
from drut.model.spec import ModelSpec
from drut.model.weights.loader import Weights
from drut.speculate.checkpoint import HeadCheckpoint
from drut.speculate.draft_model import GREEDY, DrafterLimits, DraftModel, Job
from drut.speculate.drafter import DraftInput, DraftSampling, TapDrafter
from drut.speculate.taps import TapStore

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"  # k: the stream behind the first k layers
REFUSED = ("norm_before_fc", "fc_norm", "norm_output")  # of later variants
KEPT_TAPS = 64  # rows, so that a page that the cache replaced can be filled again
CANDIDATES = 256  # draft ids with the largest logits, among which is sampled
KEYS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
        "rope_theta", "rope_scaling", "rope_parameters", "hidden_act", "attention_bias", "mlp_bias")
MATRICES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
            "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}


class Eagle3Spec(NamedTuple):
    """What a checkpoint describes. `layer`: a model of the drafter's one layer; `taps`: layers of the target."""

    layer: ModelSpec
    taps: tuple[int, ...]
    prefix: str  # of the layer's tensors
    norm_before_residual: bool


def spec_of(checkpoint: HeadCheckpoint, target: ModelSpec) -> Eagle3Spec:
    """Reads the config of a checkpoint: its own dialect, or that of speculators. Raises UnsupportedError for variants,
    and ModelFileError if it does not say which layers it reads."""
    config = checkpoint.config
    inner = config.get("transformer_layer_config", config)
    eagle = config.get("eagle_config", {})
    if not isinstance(inner, Mapping) or not isinstance(eagle, Mapping):
        raise checkpoint.fail("config.json: transformer_layer_config or eagle_config is no object")
    for key in REFUSED:
        if config.get(key) or eagle.get(key):
            raise UnsupportedError(f"{checkpoint.path.name}: {key} is not supported")
    ids = config.get(LAYER_IDS, eagle.get(LAYER_IDS))
    good = isinstance(ids, list) and ids and all(isinstance(i, int) and 0 <= i <= len(target.layers) for i in ids)
    if not isinstance(ids, list) or not good:
        raise checkpoint.fail(f"config.json: {LAYER_IDS} must list layers of the target, from 0 to "
                              f"{len(target.layers)}, not {ids}")
    kept: dict[str, Any] = {key: inner[key] for key in KEYS if inner.get(key) is not None}
    layer = from_hf({"rope_theta": 10000.0, "hidden_act": "silu", **kept, "architectures": ["LlamaForCausalLM"],
                     "model_type": "llama", "num_hidden_layers": 1, "vocab_size": target.vocab,
                     "max_position_embeddings": target.context, "tie_word_embeddings": False},
                    f"{checkpoint.path.name}/config.json")
    prefix = "midlayer." if "midlayer.hidden_norm.weight" in checkpoint.names else "layers.0."
    return Eagle3Spec(layer, tuple(i - 1 for i in ids), prefix, bool(config.get("norm_before_residual", False)))


def target_ids(checkpoint: HeadCheckpoint, target: ModelSpec) -> NDArray[np.int64]:
    """Returns the token of each draft id."""
    rows = checkpoint.shape("lm_head.weight")[0]
    ids = np.arange(rows)
    if "d2t" in checkpoint.names:
        checkpoint.demand("d2t", rows)
        ids = ids + checkpoint.integers("d2t", {"I64": "<i8", "I32": "<i4"})
    if ids.min() < 0 or ids.max() >= target.vocab:
        raise checkpoint.fail(f"d2t leads to token {ids.max()}; the model has {target.vocab}")
    return ids


def layout(spec: Eagle3Spec, dtype: str) -> DraftedLayout:
    mixer = spec.layer.layers[0].mixer
    assert isinstance(mixer, AttentionMixer)
    return DraftedLayout(dtype=dtype, layers=1, kv_heads=mixer.kv_heads, head_dim=mixer.head_dim)


class Eagle3Buffers(NamedTuple):
    """What the host fills for each row: taps, and `fed`, the layer's own output; one of the two is zero. `stream`: the
    output."""

    taps: Buffer
    fed: Buffer
    stream: Buffer


def buffers(spec: Eagle3Spec, target: ModelSpec) -> Eagle3Buffers:
    d = spec.layer.hidden
    return Eagle3Buffers(Buffer("taps", len(spec.taps) * target.hidden), Buffer("fed", d),
                         Buffer("normed_stream" if spec.norm_before_residual else "stream", d))


def record(checkpoint: HeadCheckpoint, spec: Eagle3Spec, backend: Backend, target: ModelSpec, embed: Matrix,
           kv_dtype: str) -> Plan:
    """Returns the plan, and packs its weights. `embed`: the target's embeddings, if the checkpoint has none."""
    layer, prefix, at = spec.layer, spec.prefix, buffers(spec, target)
    d, r = layer.hidden, Recorder()
    block = layer.layers[0]
    mixer = block.mixer
    assert isinstance(mixer, AttentionMixer)

    def norm(name: str) -> Norm:
        return Norm(checkpoint.vector(backend, name, d), layer.norm_eps)

    widths = {"q": (mixer.q_width, 2 * d), "k": (mixer.kv_width, 2 * d), "v": (mixer.kv_width, 2 * d),
              "o": (d, mixer.q_width), "gate": (block.ffn.width, d), "up": (block.ffn.width, d),
              "down": (d, block.ffn.width)}
    matrices = {role: checkpoint.matrix(backend, f"{prefix}{name}.weight", *widths[role])
                for role, name in MATRICES.items()}
    vectors = {"ffn_norm": checkpoint.vector(backend, f"{prefix}post_attention_layernorm.weight", d)}
    if "embed_tokens.weight" in checkpoint.names:
        embed = checkpoint.matrix(backend, "embed_tokens.weight", target.vocab, d)
    if embed.k != d:
        raise checkpoint.fail(f"its hidden size is {d}, but the embeddings have {embed.k}")
    e, g, pair = Buffer("embedded", d), Buffer("stream", d), Buffer("pair", 2 * d)
    normed_e, normed_g = Buffer("normed_embedded", d), Buffer("normed_stream", d)
    r.add(Embed(embed, e))
    for rope in layer.ropes:
        r.add(RopeTable(rope.inv_freq, rope_buffer(layer, rope), rope.scale))
    r.add(Project(0, at.taps, checkpoint.matrix(backend, "fc.weight", d, at.taps.width), g, add=False))
    r.add(Add(0, at.fed, None, g))
    r.add(Normalize(0, e, norm(f"{prefix}input_layernorm.weight"), normed_e))
    r.add(Normalize(0, g, norm(f"{prefix}hidden_norm.weight"), normed_g))
    r.add(Tap(0, normed_e, pair, 0))
    r.add(Tap(0, normed_g, pair, d))
    scope = Scope(recorder=r, spec=layer, layer=block, index=0, weights=Weights(matrices, {}, vectors), x=at.stream,
                  kv=layout(spec, kv_dtype))
    reading = replace(scope, layer=replace(block, pre_norm=False), x=pair)
    add_back(scope, mixer.record(reading), "o")
    inner = block.ffn.record(scope)
    assert inner is not None
    add_back(scope, inner, "down")
    head = checkpoint.matrix(backend, "lm_head.weight", checkpoint.shape("lm_head.weight")[0], d)
    r.add(Head(at.stream, norm("norm.weight"), head))
    r.add(Sample(head.n))
    return r.finish()


class Eagle3(DraftModel, TapDrafter):
    """Owns the executable and the taps that wait for it. For the engine's thread only."""

    def __init__(self, executable: Executable, cache: KvCache, groups: range, limits: DrafterLimits, *,
                 predictor: Predictor, target: Predictor, at: Eagle3Buffers, ids: NDArray[np.int64]) -> None:
        """`ids`: the token of each draft id."""
        super().__init__(executable, cache, groups, limits, predictor=predictor, target=target)
        self._at, self._ids, self._taps = at, ids, TapStore(KEPT_TAPS)
        self._fed: dict[int, F32] = {}  # by sequence of the proposal: the output of its last row

    def observe(self, sequence: int, epoch: int, start: int, rows: F32) -> None:
        self._taps.put(sequence, epoch, start, rows)

    def forget(self, sequence: int) -> None:
        super().forget(sequence)
        self._taps.forget(sequence)

    def method(self, sequence: int) -> str:
        return "eagle3"

    def _job(self, given: DraftInput) -> Job | None:
        """Returns the job of a sequence; None too if taps of its rows are missing."""
        job = super()._job(given)
        if job is None or len(given.tokens) < 2:
            return None
        end = len(given.tokens) - 1  # the row of the last token needs the next one
        job = replace(job, stored=min(job.stored, end - 1), end=end)
        return job if self._taps.get(given.sequence, job.stored, end) is not None else None

    def _store(self, job: Job) -> None:
        self._coverage.store(job.given, job.stored + job.rows)
        self._taps.drop(job.given.sequence, job.stored + job.rows)

    def _advance(self, jobs: Sequence[Job], rows: Sequence[int]) -> list[Job]:
        if not jobs:
            return []
        step = self._cleared(sum(pages_for(job.end + len(job.drafts)) for job in jobs), 0)
        taps = np.zeros((sum(rows), self._at.taps.width), np.float32)
        fed = np.zeros((sum(rows), self._at.fed.width), np.float32)
        drawing: list[tuple[Job, int]] = []
        for slot, (job, count) in enumerate(zip(jobs, rows, strict=True)):
            start = job.stored if not job.drafts else job.end + len(job.drafts) - 1
            tokens = job.drafts[-1:] or job.tokens[start + 1 : start + 1 + count]
            maps = [job.given.table.maps[group] for group in self._groups]  # type: ignore[union-attr]
            row = step.add_sequence(tokens, start, maps[0], slot, others=maps[1:])
            if job.drafts:
                fed[row] = self._fed[job.given.sequence]
            else:
                taps[row : row + count] = self._taps.get(job.given.sequence, start, start + count)
            if start + count >= job.end:
                step.add_sample(row + count - 1, GREEDY.settings)
                drawing.append((job, row + count - 1))
        self._executable.fill(self._at.taps, taps)
        self._executable.fill(self._at.fed, fed)
        drawn, _ = self._run(step)
        streams, logits = self._executable.rows(self._at.stream, step.rows), self._executable.logits(step.samples)
        for (job, row), best, scores in zip(drawing, drawn, logits, strict=True):
            self._fed[job.given.sequence] = streams[row].copy()
            job.drafts.append(self._sampled(best, scores, job))
        return [job for job, _ in drawing]

    def _sampled(self, best: int, logits: F32, job: Job) -> int:
        """Returns a token: the `best` draft id's, or one sampled with the target's noise, which is by token."""
        sampling, position = job.sampling, len(job.tokens) + len(job.drafts)
        if sampling.settings.temperature == 0 or not np.isfinite(logits).all():
            return int(self._ids[best])
        return sampled(logits, self._ids, sampling, position)


def sampled(logits: F32, ids: NDArray[np.int64], sampling: DraftSampling, position: int) -> int:
    """Returns the token at `position`: of the likeliest draft ids the one that the target would sample if these were
    its logits. Penalties and biases are left out."""
    settings = sampling.settings
    likely = np.argpartition(-logits, CANDIDATES)[:CANDIDATES] if len(logits) > CANDIDATES else np.arange(len(logits))
    likely = likely[np.argsort(ids[likely])]
    z = logits[likely] / np.float32(settings.temperature)
    kept = np.sort(kept_ids(z, settings.top_k, settings.top_p, settings.min_p))
    noise = gumbel(sampling.seed, position, sampling.choice, ids[likely[kept]])
    return int(ids[likely[kept[(z[kept] + noise).argmax()]]])
