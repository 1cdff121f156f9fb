"""What mixers and feed-forwards share: the norm of what goes in, and how what comes out joins the residual stream."""

from __future__ import annotations

from drut.kernels.ops import Add, Buffer, Norm, Project
from drut.kernels.plan import Recorder
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.loader import Weights


def norm(spec: ModelSpec, weights: Weights, role: str) -> Norm:
    """The model's kind of norm, with the weights of `role`."""
    bias = weights.vector(f"{role}_bias") if spec.norm_bias else None
    return Norm(weights.vector(role), spec.norm_eps, spec.centred_norm, bias)


POST_NORMS = {"o": "attn_post_norm", "down": "ffn_post_norm"}


def add_back(r: Recorder, spec: ModelSpec, layer: LayerSpec, index: int, weights: Weights, source: Buffer, role: str,
             x: Buffer) -> None:
    """x += source . weight, normed before where the layer's spec says so. `role`: of the matrix, `weights`: the
    layer's."""
    if not layer.post_norm:
        r.add(Project(index, source, weights.matrix(role), x, layer.residual_scale))
        return
    out = Buffer("added", spec.hidden)
    r.add(Project(index, source, weights.matrix(role), out, add=False))
    r.add(Add(index, out, norm(spec, weights, POST_NORMS[role]), x, layer.residual_scale))
