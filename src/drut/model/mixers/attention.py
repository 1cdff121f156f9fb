"""Grouped-query attention with rotary positions, over the whole context or a window of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

from drut.kernels.kv import KvLayout
from drut.kernels.ops import Attention, Buffer, Norm, StoreQkv
from drut.model.part import CacheUse, Mixer, Outline, Scope, Shapes, rope_buffer
from drut.model.rules import LIMITS, Rules
from drut.model.spec import Rope


@dataclass(frozen=True)
class AttentionUse(CacheUse):
    """The keys and values of each position that a row sees."""

    kv_heads: int
    head_dim: int
    window: int = 0  # positions a row sees, its own the last; 0: all

    @property
    def reach(self) -> float:
        return self.window or math.inf

    def within(self, context: int) -> Self:
        return self if self.window < context else replace(self, window=0)

    def layout(self, dtype: str, group: int, members: tuple[int, ...]) -> KvLayout:
        return KvLayout(dtype=dtype, layers=len(members), kv_heads=self.kv_heads, head_dim=self.head_dim, group=group,
                        window=self.window, members=members)


@dataclass(frozen=True)
class AttentionMixer(Mixer):
    """Grouped-query attention. Head h reads key/value head h // (heads / kv_heads)."""

    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope | None  # None: no positional encoding (NoPE)
    softmax_scale: float  # multiplies q . k
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["", "head", "width"] = ""  # q and k are normed: each head alone, or all heads together
    window: int = 0  # sliding window: latest positions that a row sees, its own included; 0: all
    softcap: float = 0.0  # scores become cap * tanh(score / cap); 0: no cap
    sinks: bool = False  # each head has a logit that takes part in the softmax and has no value
    # (beta, span): q is multiplied by 1 + beta * log(1 + position // span), as in Llama 4 and Ministral 3
    query_scale_by_position: tuple[float, int] | None = None

    kind = "attention"

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def ropes(self) -> tuple[Rope, ...]:
        return (self.rope,) if self.rope else ()

    def within(self, context: int) -> Self:
        return replace(self, rope=self.rope.within(context)) if self.rope else self

    def cache_use(self) -> AttentionUse:
        return AttentionUse(self.kv_heads, self.head_dim, self.window)

    def paired_rows(self) -> dict[str, tuple[int, int]]:
        rotated = self.rope.width if self.rope else self.head_dim
        return {role: (heads, rotated) for role, heads in
                (("q", self.heads), ("k", self.kv_heads), ("q_bias", self.heads), ("k_bias", self.kv_heads))}

    def outline(self) -> Outline:
        return Outline(self.kind, self.heads, self.kv_heads, self.head_dim, self.window)

    def shapes(self, hidden: int) -> Shapes:
        shapes: Shapes = {"q": (self.q_width, hidden), "k": (self.kv_width, hidden), "v": (self.kv_width, hidden),
                          "o": (hidden, self.q_width)}
        if self.qkv_bias:
            shapes |= {"q_bias": (self.q_width,), "k_bias": (self.kv_width,), "v_bias": (self.kv_width,)}
        if self.o_bias:
            shapes["o_bias"] = (hidden,)
        if self.qk_norm == "head":
            shapes |= {"q_norm": (self.head_dim,), "k_norm": (self.head_dim,)}
        if self.qk_norm == "width":
            shapes |= {"q_norm": (self.q_width,), "k_norm": (self.kv_width,)}
        if self.sinks:
            shapes["sinks"] = (self.heads,)
        return shapes

    def check(self, rules: Rules) -> None:
        demand = rules.demand
        rules.bounded("heads", self.heads)
        rules.bounded("heads", self.kv_heads)
        rules.bounded("head_dim", self.head_dim)
        demand(self.heads % self.kv_heads == 0, f"{self.heads} heads do not divide among {self.kv_heads} key/value "
                                                "heads")
        demand(self.heads // self.kv_heads <= 64,
               f"{self.heads // self.kv_heads} heads share one key/value head; at most 64 may")
        demand(self.head_dim % 16 == 0, f"head size {self.head_dim} is not a multiple of 16")
        demand(0 < abs(self.softmax_scale) < 1e6,
               f"softmax_scale {self.softmax_scale} of attention is 0, or 1e6 or more")
        demand(0 <= self.window <= LIMITS["context"], f"window {self.window} is outside 0..{LIMITS['context']}")
        demand(0 <= self.softcap < 1e6, f"softcap {self.softcap} of attention is outside 0..1e6")
        demand(self.rope is None or self.rope.width <= self.head_dim, "rope rotates more elements than a head has")

    def record(self, scope: Scope) -> Buffer:
        """Records attention(q, k, v of norm(x)); returns the heads' outputs."""
        kv, w, eps = scope.kv, scope.weights, scope.spec.norm_eps
        assert isinstance(kv, KvLayout), "attention keeps keys and values"
        y = scope.normed(scope.x, "attn_norm") if scope.layer.pre_norm else scope.x
        q, k, v = (scope.projected(y, role, role) for role in ("q", "k", "v"))
        q_norm, k_norm = (Norm(w.vector(role), eps) if self.qk_norm else None for role in ("q_norm", "k_norm"))
        scope.recorder.add(StoreQkv(layer=scope.index, rope=rope_buffer(scope.spec, self.rope) if self.rope else None,
                                    q=q, k=k, v=v, heads=self.heads, kv=kv, q_norm=q_norm, k_norm=k_norm,
                                    wide_norm=self.qk_norm == "width", growth=self.query_scale_by_position))
        mixed = Buffer("mixed", self.q_width)
        scope.recorder.add(Attention(layer=scope.index, q=q, out=mixed, heads=self.heads, kv=kv,
                                     scale=self.softmax_scale, window=self.window, cap=self.softcap,
                                     sinks=w.vector("sinks") if self.sinks else None))
        return mixed
