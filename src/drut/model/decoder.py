"""The decoder: one loop over layers, recorded once as a plan."""

from __future__ import annotations

from collections.abc import Sequence

from drut.errors import RequestError
from drut.kernels.kv import CacheLayout
from drut.kernels.ops import Buffer, Embed, Head, RopeTable, Sample, Tap
from drut.kernels.plan import BEFORE_HEAD, BEFORE_SAMPLE, Plan, Recorder
from drut.model.part import CacheUse, Scope, norm, rope_buffer
from drut.model.residual import add_back
from drut.model.spec import ModelSpec
from drut.model.weights.loader import Weights


def kv_layouts(spec: ModelSpec, dtype: str, *, context: int | None = None, windows: bool = True) -> list[CacheLayout]:
    """Returns the layouts of the model's KV groups: layers that cache the same of a sequence, the largest window first.
    Without `windows` every layer keeps the whole context. A window of `context` (default: the spec's) or more tokens
    counts as the whole context."""
    longest = context or spec.context
    layers: dict[CacheUse, list[int]] = {}
    for i, layer in enumerate(spec.layers):
        use = layer.mixer.cache_use()
        if use is not None:
            layers.setdefault(use.within(longest if windows else 0), []).append(i)
    widest = sorted(layers, key=lambda use: -use.reach)
    return [use.layout(dtype, group, tuple(layers[use])) for group, use in enumerate(widest)]


def tapped(spec: ModelSpec, taps: Sequence[int]) -> Buffer:
    """Returns the buffer of a plan's taps: side by side, in the order of `taps`."""
    return Buffer("taps", spec.hidden * len(taps))


def record(spec: ModelSpec, weights: Weights, layouts: Sequence[CacheLayout], taps: Sequence[int] = ()) -> Plan:
    """Returns the plan of a step: embed, the layers, head, sample. `taps`: layers whose output, the residual stream
    behind the layer, is copied to the buffer `tapped`; -1 is the embeddings. Raises RequestError for other numbers."""
    r = Recorder()
    if not set(taps) <= set(range(-1, len(spec.layers))):
        raise RequestError(f"taps {list(taps)} of a model with layers 0 to {len(spec.layers) - 1}")

    def tap(layer: int) -> None:
        for place, wanted in enumerate(taps):
            if wanted == layer:
                r.add(Tap(layer, x, tapped(spec, taps), place * spec.hidden))

    of_layer = {layer: kv for kv in layouts for layer in kv.members or range(kv.layers)}
    x = Buffer("x", spec.hidden)
    r.add(Embed(weights.matrix("embed"), x, spec.embed_scale))
    tap(-1)
    record_ropes(r, spec)
    for i in range(len(spec.layers)):
        record_layer(r, spec, i, weights.layer(i), x, of_layer.get(i))
        tap(i)
    r.stop(BEFORE_HEAD)
    head = weights.matrix("embed" if spec.tied_head else "head")
    r.add(Head(x, norm(spec, weights, "final_norm"), head, spec.logit_scale, spec.logit_softcap))
    r.stop(BEFORE_SAMPLE)
    r.add(Sample(spec.vocab))
    return r.finish()


def record_ropes(r: Recorder, spec: ModelSpec) -> None:
    """Records the tables of cosines and sines that the layers read."""
    for rope in spec.ropes:
        r.add(RopeTable(rope.inv_freq, rope_buffer(spec, rope), rope.scale))


def record_layer(r: Recorder, spec: ModelSpec, index: int, weights: Weights, x: Buffer,
                 kv: CacheLayout | None) -> None:
    """Records a layer, which adds to `x`. `weights`: by the layer's roles; `kv`: the layout of its KV group."""
    layer = spec.layers[index]
    scope = Scope(recorder=r, spec=spec, layer=layer, index=index, weights=weights, x=x, kv=kv)
    mixed = layer.mixer.record(scope)
    inner = layer.ffn.record(scope) if layer.parallel else None  # order: reads x before the mixer adds to it
    add_back(scope, mixed, "o")
    inner = inner or layer.ffn.record(scope)
    if inner is not None:
        add_back(scope, inner, "down")
