"""Grouped-query attention with rotary positions, over the whole context or a window of it."""

from __future__ import annotations

from drut.kernels.kv import KvLayout
from drut.kernels.ops import Attention, Buffer, Norm, Qkv
from drut.kernels.plan import Recorder
from drut.model.residual import norm
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.loader import Weights

KV_KIND = "full"


def rope_buffer(spec: ModelSpec, rope: Rope) -> Buffer:
    """Cosines and sines of a step's rows, shared by all layers with the same frequencies."""
    return Buffer(f"rope{spec.ropes.index(rope)}", 2 * len(rope.inv_freq))


def record(r: Recorder, spec: ModelSpec, layer: LayerSpec, index: int, weights: Weights, x: Buffer,
           kv: KvLayout) -> Buffer:
    """attention(q, k, v of norm(x)): what `o` is to project back."""
    m = layer.mixer
    w = weights.layer(index)
    q, k, v = Buffer("q", m.q_width), Buffer("k", m.kv_width), Buffer("v", m.kv_width)
    mixed = Buffer("mixed", m.q_width)
    q_norm, k_norm = (Norm(w.vector(role), spec.norm_eps) if m.qk_norm else None for role in ("q_norm", "k_norm"))
    r.add(Qkv(index, x, norm(spec, w, "attn_norm") if layer.pre_norm else None, w.matrix("q"), w.matrix("k"),
              w.matrix("v"), rope_buffer(spec, m.rope) if m.rope else None, q, k, v, m.heads, kv, q_norm, k_norm,
              m.qk_norm == "width", m.growth))
    r.add(Attention(index, q, mixed, m.heads, kv, m.scale, m.window, m.cap, w.vector("sinks") if m.sinks else None))
    return mixed
