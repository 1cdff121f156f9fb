"""The outline of a model's weights: their form without data. A plan recorded over it has the same costs."""

from __future__ import annotations

from collections.abc import Mapping

from drut.kernels.backend import Backend
from drut.kernels.outline import MatrixOutline, VectorOutline
from drut.kernels.weight import Matrix, Stack, Vector
from drut.model.families.table import Stored
from drut.model.roles import expected_shapes
from drut.model.spec import ModelSpec
from drut.model.weights.loader import Weights, is_bias, packed_encoding
from drut.model.weights.source import TensorSource


def outline_weights(spec: ModelSpec, source: TensorSource, table: Mapping[str, Stored], backend: Backend) -> Weights:
    """Returns the outline of what `load_weights` would pack for `backend`. `check_tensors` must have accepted the
    tensors."""
    matrices: dict[str, Matrix] = {}
    stacks: dict[str, Stack] = {}
    vectors: dict[str, Vector] = {}
    for role, shape in expected_shapes(spec).items():
        if is_bias(role):
            continue
        if len(shape) == 1:
            vectors[role] = VectorOutline(shape[0])
            continue
        (*experts, n, k), enc = shape, packed_encoding(role, table[role], source)
        count, each = experts[0] if experts else 1, backend.packed_bytes(enc, n, k)
        outline = MatrixOutline(n=n, k=k, encoding=enc, nbytes=count * each, count=count)
        if experts:
            stacks[role] = outline
        else:
            matrices[role] = outline
    return Weights(matrices, stacks, vectors)
