"""Adds the output of a mixer or a feed-forward to the residual stream."""

from __future__ import annotations

from drut.kernels.ops import Add, Buffer
from drut.model.part import Scope

POST_NORMS = {"o": "attn_post_norm", "down": "ffn_post_norm"}


def add_back(scope: Scope, source: Buffer, role: str) -> None:
    """Records x += source . weight, with a norm before the addition if the layer has post norms. `role`: the matrix."""
    out = scope.projected(source, role, "added")
    if scope.layer.post_norm:
        out = scope.normed(out, POST_NORMS[role])
    scope.recorder.add(Add(scope.index, out, None, scope.x, scope.layer.residual_scale))
