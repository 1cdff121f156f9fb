"""Puts a model's tensors into a backend: role by role, checked against the spec, the file's pages let go after each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError, UnsupportedError
from drut.formats.decode import F32, decode
from drut.formats.encoding import encoding
from drut.kernels.backend import Backend, PackingBackend
from drut.kernels.weight import Matrix, Vector
from drut.model.families.table import Stored
from drut.model.roles import expected_shapes, layer_role
from drut.model.spec import ModelSpec
from drut.model.weights.mapping import quote
from drut.model.weights.source import TensorInfo, TensorSource

BIASES = {role: f"{role}_bias" for role in ("q", "k", "v", "o", "gate", "up", "down")}
SAID_ELSEWHERE = re.compile(r"(.*\.)?rotary_emb\.inv_freq|rope_(freqs|factors_long|factors_short)\.weight")
Report = Callable[[int], None]


@dataclass(frozen=True)
class Weights:
    """Packed weights by role."""

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, Vector]
    prefix: str = ""

    def layer(self, index: int) -> Weights:
        """The same, with roles of layer `index` by their short names."""
        return Weights(self.matrices, self.vectors, layer_role(index, ""))

    def matrix(self, role: str) -> Matrix:
        return self.matrices[self.prefix + role]

    def vector(self, role: str) -> Vector:
        return self.vectors[self.prefix + role]

    @property
    def nbytes(self) -> int:
        """Packed bytes of all matrices."""
        return sum(m.nbytes for m in self.matrices.values())


def check_tensors(spec: ModelSpec, source: TensorSource, table: Mapping[str, Stored], where: str) -> None:
    """Every role of `spec` is stored, with its shape and an encoding that is supported; the error names the tensor."""
    for role, shape in expected_shapes(spec).items():
        _info(source, table[role], shape, where)
    # No key of a file need tell of a bias or a norm, and to leave one out would change the answer.
    used = {stored.name for stored in table.values()}
    for name in source.tensors:
        copied = spec.tied_head and name == "lm_head.weight"
        if name not in used and not copied and not SAID_ELSEWHERE.fullmatch(name):
            raise UnsupportedError(f"{where}: tensor {quote(name)} is not supported by family {spec.family}")


def load_weights(spec: ModelSpec, source: TensorSource, table: Mapping[str, Stored], backend: Backend, where: str,
                 report: Report | None = None, kept: Mapping[str, NDArray[np.uint8]] | None = None) -> Weights:
    """Packs every role of `spec`. `report` is told the bytes of each tensor done.

    Matrices in `kept`, by role, were packed before by the same backend, a PackingBackend, and are taken as they are.
    """
    check_tensors(spec, source, table, where)
    shapes = expected_shapes(spec)
    matrices: dict[str, Matrix] = {}
    vectors: dict[str, Vector] = {}
    for role, shape in shapes.items():
        stored = table[role]
        info = source.tensors[stored.name]
        if len(shape) == 1:
            if role.rsplit(".", 1)[-1] not in BIASES.values():
                vectors[role] = backend.vector(_vector(source, stored, shape, where))
        else:
            bias_role = _bias_role(role)
            bias = None
            if bias_role in shapes:
                bias = _vector(source, table[bias_role], shapes[bias_role], where)
            if kept is not None and isinstance(backend, PackingBackend):
                matrices[role] = backend.adopt(encoding(info.encoding), kept[role], *shape, bias=bias)
            else:
                matrices[role] = _matrix(source, info, stored, shape, backend, bias)
        source.release(stored.name)
        if report:
            report(info.nbytes * shape[0] // info.shape[0])
    return Weights(matrices, vectors)


def _bias_role(role: str) -> str:
    prefix, _, short = role.rpartition(".")
    return f"{prefix}.{BIASES[short]}" if short in BIASES else ""


def _matrix(source: TensorSource, info: TensorInfo, stored: Stored, shape: tuple[int, ...], backend: Backend,
            bias: F32 | None) -> Matrix:
    n, k = shape
    enc = encoding(info.encoding)
    first = stored.first * enc.row_bytes(k)
    raw = source.raw(info.name)[first : first + n * enc.row_bytes(k)]
    return backend.matrix(enc, raw, n, k, rows=stored.row_order(n), bias=bias)


def _vector(source: TensorSource, stored: Stored, shape: tuple[int, ...], where: str) -> F32:
    """In canonical order, the stored offset added."""
    info = source.tensors[stored.name]
    enc = encoding(info.encoding)
    if not enc.is_float:
        raise ModelFileError(f"{where}: tensor {info.name!r} is {info.encoding}; a vector must be of floats")
    raw: NDArray[np.uint8] = source.raw(info.name)
    values: F32 = decode(enc, raw, info.shape[0])[0][stored.first : stored.first + shape[0]]
    if not np.isfinite(values).all():
        raise ModelFileError(f"{where}: tensor {info.name!r} holds a value that is not finite")
    order = stored.row_order(len(values))
    values = values if order is None else values[order]
    return values + np.float32(stored.offset) if stored.offset else values


def _info(source: TensorSource, stored: Stored, shape: tuple[int, ...], where: str) -> TensorInfo:
    info = source.tensors.get(stored.name)
    if info is None:
        raise ModelFileError(f"{where}: tensor {stored.name!r} is missing")
    expected = (stored.rows or shape[0], *shape[1:])
    if info.shape != expected:
        raise ModelFileError(f"{where}: tensor {stored.name!r} has shape {list(info.shape)}, expected {list(expected)}")
    try:
        enc = encoding(info.encoding)
    except Exception as error:
        raise type(error)(f"{where}: tensor {stored.name!r}: {error}") from None
    if len(shape) == 2 and shape[1] % enc.block:
        raise ModelFileError(f"{where}: tensor {stored.name!r}: rows of {shape[1]} are not whole blocks of {enc.name}")
    return info
