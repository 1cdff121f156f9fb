"""How what a mixer or a feed-forward makes joins the residual stream."""

from __future__ import annotations

from drut.kernels.ops import Add, Buffer, Project
from drut.model.part import Scope

POST_NORMS = {"o": "attn_post_norm", "down": "ffn_post_norm"}


def add_back(scope: Scope, source: Buffer, role: str) -> None:
    """x += source . weight, normed before if the layer's spec says so; `role`: of the matrix."""
    r, layer, index, weight = scope.recorder, scope.layer, scope.index, scope.weights.matrix(role)
    if not layer.post_norm:
        r.add(Project(index, source, weight, scope.x, layer.residual_scale))
        return
    out = Buffer("added", scope.spec.hidden)
    r.add(Project(index, source, weight, out, add=False))
    r.add(Add(index, out, scope.norm(POST_NORMS[role]), scope.x, layer.residual_scale))
