"""How what a mixer or a feed-forward makes joins the residual stream."""

from __future__ import annotations

from drut.kernels.ops import Add, Buffer
from drut.model.part import Scope

POST_NORMS = {"o": "attn_post_norm", "down": "ffn_post_norm"}


def add_back(scope: Scope, source: Buffer, role: str) -> None:
    """x += source . weight, normed before if the layer's spec says so; `role`: of the matrix."""
    out = scope.projected(source, role, "added")
    if scope.layer.post_norm:
        out = scope.normed(out, POST_NORMS[role])
    scope.recorder.add(Add(scope.index, out, None, scope.x, scope.layer.residual_scale))
