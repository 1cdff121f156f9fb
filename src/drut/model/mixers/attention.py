"""Grouped-query attention with rotary positions, over the whole context or a window of it."""

from __future__ import annotations

from drut.kernels.kv import KvLayout
from drut.kernels.ops import Attention, Buffer, Project, Qkv
from drut.kernels.plan import Recorder
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.loader import Weights

KV_KIND = "full"


def rope_buffer(spec: ModelSpec, rope: Rope) -> Buffer:
    """Cosines and sines of a step's rows, shared by all layers with the same frequencies."""
    return Buffer(f"rope{spec.ropes.index(rope)}", 2 * len(rope.inv_freq))


def record(r: Recorder, spec: ModelSpec, layer: LayerSpec, index: int, weights: Weights, x: Buffer,
           kv: KvLayout) -> None:
    """x += o(attention(q, k, v of norm(x)))."""
    m = layer.mixer
    w = weights.layer(index)
    q, k, v = Buffer("q", m.q_width), Buffer("k", m.kv_width), Buffer("v", m.kv_width)
    mixed = Buffer("mixed", m.q_width)
    r.add(Qkv(index, x, w.vector("attn_norm"), spec.norm_eps, w.matrix("q"), w.matrix("k"), w.matrix("v"),
              rope_buffer(spec, m.rope), q, k, v, m.heads, kv,
              w.vector("q_norm") if m.qk_norm else None, w.vector("k_norm") if m.qk_norm else None))
    r.add(Attention(index, q, mixed, m.heads, kv, m.scale, m.window, m.cap, w.vector("sinks") if m.sinks else None))
    r.add(Project(index, mixed, w.matrix("o"), x))
