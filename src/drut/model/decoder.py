"""The decoder: one loop over layers, recorded once as a plan."""

from __future__ import annotations

from collections.abc import Sequence

from drut.kernels.kv import KvLayout
from drut.kernels.ops import Buffer, Embed, Head, RopeTable, Sample
from drut.kernels.plan import BEFORE_HEAD, BEFORE_SAMPLE, Plan, Recorder
from drut.model import ffn, moe
from drut.model.mixers import MIXERS
from drut.model.mixers.attention import rope_buffer
from drut.model.residual import add_back, norm
from drut.model.spec import ModelSpec, MoeFfn
from drut.model.weights.loader import Weights


def kv_layouts(spec: ModelSpec, dtype: str, *, context: int | None = None, windows: bool = True) -> list[KvLayout]:
    """Pages of the model's KV groups: layers that see as far, those that see most first. Without `windows` all layers
    are one group that keeps the whole context. A window of `context` (else the spec's) or more hides nothing."""
    m, longest = spec.layers[0].mixer, context or spec.context
    if not windows:
        return [KvLayout(dtype, len(spec.layers), m.kv_heads, m.head_dim)]
    layers: dict[int, list[int]] = {}
    for i, layer in enumerate(spec.layers):
        window = layer.mixer.window
        layers.setdefault(window if window < longest else 0, []).append(i)
    widest = sorted(layers, key=lambda window: (window != 0, -window))
    return [KvLayout(dtype, len(layers[w]), m.kv_heads, m.head_dim, group, w, tuple(layers[w]))
            for group, w in enumerate(widest)]


def record(spec: ModelSpec, weights: Weights, layouts: Sequence[KvLayout]) -> Plan:
    """The operations of a step: embed, the layers, head, sample."""
    r = Recorder()
    of_layer = {layer: kv for kv in layouts for layer in kv.members or range(kv.layers)}
    x = Buffer("x", spec.hidden)
    r.add(Embed(weights.matrix("embed"), x, spec.embed_scale))
    for rope in spec.ropes:
        r.add(RopeTable(rope.inv_freq, rope_buffer(spec, rope), rope.scale))
    for i, layer in enumerate(spec.layers):
        mixed = MIXERS[layer.mixer.kind](r, spec, layer, i, weights, x, of_layer[i])
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
