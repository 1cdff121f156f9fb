"""Runs a token sample through the layers of a model in float32 and measures what each matrix multiplies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from drut.formats.encoding import encoding
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.numpy.backend import NumpyVector
from drut.kernels.numpy.executable import NumpyExecutable
from drut.kernels.numpy.matmul import NumpyMatrix
from drut.kernels.numpy.operations.table import OPERATIONS
from drut.kernels.numpy.state import NumpyState
from drut.kernels.ops import F32, Buffer, Project
from drut.kernels.plan import Recorder
from drut.model.decoder import record_layer, record_ropes
from drut.model.spec import ModelSpec
from drut.model.weights.loader import Weights, is_bias


class Calibration:
    """`rows`: the residual stream of a token sample between two layers, (tokens, hidden). Layers run one by one, so
    that only one needs to be in memory."""

    def __init__(self, spec: ModelSpec, embed: F32, ids: Sequence[int]) -> None:
        self._spec, self._x = spec, Buffer("x", spec.hidden)
        self.rows: F32 = embed[list(ids)] * np.float32(spec.embed_scale)
        self._pages = -(-len(ids) // PAGE_TOKENS)
        self._step = StepDescriptor(rows=len(ids), seqs=1, samples=1, blocks=self._pages)
        self._step.add_sequence(ids, 0, range(self._pages), 0)

    def layer(self, index: int, values: Mapping[str, F32]) -> dict[str, F32]:
        """Runs layer `index`, the next one, with the weights `values` by role.

        Returns by matrix the root mean square of each element of the rows that it multiplies, (inputs,).
        """
        weights = _weights(values)
        found: dict[str, F32] = {}
        roles: dict[object, str] = {matrix: role for role, matrix in weights.matrices.items()}

        def project(op: Project, state: NumpyState, step: StepDescriptor) -> None:
            role, x = roles[op.weight], state.get(op.source)
            found[role] = np.sqrt((x * x).mean(axis=0, dtype=np.float64)).astype(np.float32)
            # All rows at once, many times faster than the oracle's exact order.
            state.set(op.x, x @ values[role].T + values.get(f"{role}_bias", np.float32(0)))

        use = self._spec.layers[index].mixer.cache_use()
        assert use is not None
        kv, r = use.layout("fp32", 0, (index,)), Recorder()
        record_ropes(r, self._spec)
        record_layer(r, self._spec, index, weights, self._x, kv)
        run = NumpyExecutable(r.finish(), [np.zeros((self._pages, kv.page_bytes), np.uint8)], np.zeros(1, np.int32),
                              {**OPERATIONS, Project: project})
        run.state.set(self._x, self.rows)
        run.run(self._step)
        self.rows = run.state.get(self._x)
        return found


def _weights(values: Mapping[str, F32]) -> Weights:
    f32 = encoding("F32")
    matrices = {role: NumpyMatrix(n=v.shape[0], k=v.shape[1], encoding=f32, floats=v)
                for role, v in values.items() if v.ndim == 2}
    return Weights(matrices, {}, {role: NumpyVector(v) for role, v in values.items()
                                  if v.ndim == 1 and not is_bias(role)})
