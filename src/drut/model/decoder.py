"""The decoder: one loop over layers, recorded once as a plan."""

from __future__ import annotations

from drut.kernels.kv import KvLayout
from drut.kernels.ops import Buffer, Embed, Head, RopeTable, Sample
from drut.kernels.plan import BEFORE_HEAD, BEFORE_SAMPLE, Plan, Recorder
from drut.model import ffn, moe
from drut.model.mixers import MIXERS
from drut.model.mixers.attention import rope_buffer
from drut.model.residual import add_back, norm
from drut.model.spec import ModelSpec, MoeFfn
from drut.model.weights.loader import Weights


def kv_layout(spec: ModelSpec, dtype: str) -> KvLayout:
    """Pages of the model's one group of layers."""
    m = spec.layers[0].mixer
    return KvLayout(dtype, len(spec.layers), m.kv_heads, m.head_dim)


def record(spec: ModelSpec, weights: Weights, kv: KvLayout) -> Plan:
    """The operations of a step: embed, the layers, head, sample."""
    r = Recorder()
    x = Buffer("x", spec.hidden)
    r.add(Embed(weights.matrix("embed"), x, spec.embed_scale))
    for rope in spec.ropes:
        r.add(RopeTable(rope.inv_freq, rope_buffer(spec, rope), rope.scale))
    for i, layer in enumerate(spec.layers):
        mixed = MIXERS[layer.mixer.kind](r, spec, layer, i, weights, x, kv)
        w = weights.layer(i)
        inner = ffn.record(r, spec, layer, i, w, x) if layer.parallel else None  # of x before the mixer's share
        add_back(r, spec, layer, i, w, mixed, "o", x)
        if isinstance(layer.ffn, MoeFfn):
            moe.record(r, spec, layer, i, w, x)
            continue
        add_back(r, spec, layer, i, w, inner or ffn.record(r, spec, layer, i, w, x), "down", x)
    r.stop(BEFORE_HEAD)
    head = weights.matrix("embed" if spec.tied_head else "head")
    r.add(Head(x, norm(spec, weights, "final_norm"), head, spec.logit_scale, spec.logit_cap))
    r.stop(BEFORE_SAMPLE)
    r.add(Sample(spec.vocab))
    return r.finish()
