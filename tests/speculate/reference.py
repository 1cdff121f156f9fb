"""Plain float64 computations, to compare drafters with: the tiny target, Medusa heads, an EAGLE-3 layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.cli import tiny

F64 = NDArray[np.float64]
EPS = 1e-5


def target_weights() -> dict[str, F64]:
    return {str(t.name): np.frombuffer(t.data, "<f4").reshape(t.dims[::-1]).astype(np.float64)
            for t in tiny.tensors()}


def rms(x: F64, weight: F64) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def silu(x: F64) -> F64:
    return x / (1 + np.exp(-x))


def rotated(x: F64, positions: Sequence[int], base: float, *, adjacent: bool) -> F64:
    """`x` (rows, heads, size). The two elements that are rotated together are adjacent, or half a head apart."""
    size = x.shape[-1]
    angle = np.array(positions)[:, None, None] * base ** (-np.arange(size // 2) * 2 / size)
    first, second = (x[..., 0::2], x[..., 1::2]) if adjacent else (x[..., : size // 2], x[..., size // 2 :])
    a, b = first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)
    if not adjacent:
        return np.concatenate([a, b], -1)
    out = np.empty_like(x)
    out[..., 0::2], out[..., 1::2] = a, b
    return out


def attention(q: F64, k: F64, v: F64) -> F64:
    """Causal; (rows, heads, size) each, with fewer heads of k and v. Returns (rows, heads * size)."""
    k, v = (np.repeat(each, q.shape[1] // each.shape[1], 1) for each in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v).reshape(len(q), -1)


def streams(tokens: Sequence[int]) -> list[F64]:
    """The residual streams of the tiny target: the embeddings, then behind each layer."""
    w, size = target_weights(), tiny.HIDDEN // tiny.HEADS
    x = w["token_embd.weight"][list(tokens)]
    found = [x]
    for i in range(tiny.LAYERS):
        def of(name: str, i: int = i) -> F64:
            return w[f"blk.{i}.{name}.weight"]

        y = rms(x, of("attn_norm"))
        q, k, v = ((y @ of(name).T).reshape(len(y), -1, size) for name in ("attn_q", "attn_k", "attn_v"))
        q, k = (rotated(each, range(len(y)), 5000.0, adjacent=True) for each in (q, k))
        x = x + attention(q, k, v) @ of("attn_output").T
        y = rms(x, of("ffn_norm"))
        x = x + (silu(y @ of("ffn_gate").T) * (y @ of("ffn_up").T)) @ of("ffn_down").T
        found.append(x)
    return found


def logits(tokens: Sequence[int]) -> F64:
    w = target_weights()
    return rms(streams(tokens)[-1], w["output_norm.weight"]) @ w["token_embd.weight"].T


def medusa(heads: Sequence[Sequence[tuple[F64, F64]]], matrices: Sequence[F64], tokens: Sequence[int],
           tap: int = -1) -> list[F64]:
    """The logits of each head behind the last of `tokens`. `heads`: weight and bias of each block."""
    h = rms(streams(tokens)[tap][-1], target_weights()["output_norm.weight"])
    made = []
    for blocks, matrix in zip(heads, matrices, strict=True):
        z = h
        for weight, bias in blocks:
            z = z + silu(weight @ z + bias)
        made.append(matrix @ z)
    return made


def eagle3(w: dict[str, F64], ids: Sequence[int], tokens: Sequence[int], drafts: Sequence[int], heads: int,
           *, norm_before_residual: bool = False) -> list[F64]:
    """The draft logits behind `tokens`, and behind each of `drafts`. `w`: tensors by the names of the public dialect;
    `ids`: the taps, where k is the stream behind the first k layers."""
    found, table = streams(tokens[:-1]), w.get("embed_tokens.weight", target_weights()["token_embd.weight"])
    g = list(np.concatenate([found[k] for k in ids], -1) @ w["fc.weight"].T)
    read, made = list(tokens[1:]), []
    for draft in (None, *drafts):
        if draft is not None:
            read.append(draft)
        out = _eagle3_layer(w, np.array(g), table[read], heads, norm_before_residual)
        g.append(out[-1])
        made.append(w["lm_head.weight"] @ rms(out[-1], w["norm.weight"]))
    return made


def _eagle3_layer(w: dict[str, F64], g: F64, e: F64, heads: int, norm_before_residual: bool) -> F64:
    def of(name: str) -> F64:
        return w[f"midlayer.{name}.weight"]

    normed = rms(g, of("hidden_norm"))
    y = np.concatenate([rms(e, of("input_layernorm")), normed], -1)
    size = len(of("self_attn.q_proj")) // heads
    q, k, v = ((y @ of(f"self_attn.{name}_proj").T).reshape(len(y), -1, size) for name in "qkv")
    q, k = (rotated(each, range(len(y)), 10000.0, adjacent=False) for each in (q, k))
    x = (normed if norm_before_residual else g) + attention(q, k, v) @ of("self_attn.o_proj").T
    y = rms(x, of("post_attention_layernorm"))
    return x + (silu(y @ of("mlp.gate_proj").T) * (y @ of("mlp.up_proj").T)) @ of("mlp.down_proj").T
