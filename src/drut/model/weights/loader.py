"""Packs a model's tensors for a backend: role by role, checked against the spec. The file's pages are released after
each role."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError, UnsupportedError
from drut.formats.decode import decode
from drut.formats.encoding import Encoding, encoding
from drut.formats.planes import F32
from drut.kernels.backend import Backend, PackingBackend
from drut.kernels.weight import Matrix, Stack, Vector, slices_of
from drut.model.families.table import Stored, StoredExperts
from drut.model.roles import Axis, axis_of, expected_shapes, layer_role
from drut.model.spec import ModelSpec
from drut.model.weights.check import tensor_info
from drut.model.weights.experts import check_experts, expert_biases, expert_rows
from drut.model.weights.mapping import quote
from drut.model.weights.source import TensorSource

BIASES = {role: f"{role}_bias" for role in ("q", "k", "v", "o", "gate", "up", "down", "router", "gate_experts",
                                            "up_experts", "down_experts")}
DERIVED_TENSORS = re.compile(r"(.*\.)?rotary_emb\.inv_freq|rope_(freqs|factors_long|factors_short)\.weight")
Report = Callable[[int], None]


@dataclass(frozen=True)
class Weights:
    """Packed weights by role."""

    matrices: Mapping[str, Matrix]
    stacks: Mapping[str, Stack]
    vectors: Mapping[str, Vector]
    prefix: str = ""

    def layer(self, index: int) -> Weights:
        """Returns the weights of layer `index`, by the short names of their roles."""
        return Weights(self.matrices, self.stacks, self.vectors, layer_role(index, ""))

    def matrix(self, role: str) -> Matrix:
        return self.matrices[self.prefix + role]

    def stack(self, role: str) -> Stack:
        return self.stacks[self.prefix + role]

    def vector(self, role: str) -> Vector:
        return self.vectors[self.prefix + role]

    @property
    def nbytes(self) -> int:
        """Packed bytes of all matrices."""
        return sum(m.nbytes for m in self.matrices.values()) + sum(s.nbytes for s in self.stacks.values())


def check_tensors(spec: ModelSpec, source: TensorSource, table: Mapping[str, Stored], where: str) -> None:
    """Checks that every role of `spec` is stored with its shape and a supported encoding; an error names the tensor."""
    used: set[str] = set()
    for role, shape in expected_shapes(spec).items():
        stored = table[role].present(source.tensors)
        if isinstance(stored, StoredExperts):
            check_experts(source, stored, shape, where)
        else:
            tensor_info(source, stored.name, (stored.rows or shape[0], *shape[1:]), shape[-1], where)
        used.update(stored.names(shape[0]))
    # A file need not have a key for a bias or a norm, and ignoring one would change the output.
    beyond = tuple(prefix.format(len(spec.layers)) for prefix in ("model.layers.{}.", "blk.{}.") if spec.mtp_layer)
    for name in source.tensors:
        copied = spec.tied_head and name == "lm_head.weight"
        spare = not (name in used or copied or name.startswith(beyond) or DERIVED_TENSORS.fullmatch(name))
        if spare and not (name.endswith("bias") and not source.raw(name).any()):  # a bias of zeros changes nothing
            raise UnsupportedError(f"{where}: tensor {quote(name)} is not supported by family {spec.family}")


def load_weights(spec: ModelSpec, source: TensorSource, table: Mapping[str, Stored], backend: Backend, where: str,
                 report: Report | None = None, kept: Mapping[str, NDArray[np.uint8]] | None = None) -> Weights:
    """Packs every role of `spec`. `report` gets the bytes of each tensor that is done.

    Matrices in `kept`, by role, were packed before by the same backend, a PackingBackend, and are used unchanged.
    """
    check_tensors(spec, source, table, where)
    load = _Loading(shapes=expected_shapes(spec), source=source, table=table, backend=backend, where=where, kept=kept)
    for role, shape in load.shapes.items():
        if is_bias(role):
            continue
        stored = load.stored(role)
        if len(shape) == 1:
            load.vectors[role] = backend.vector(_vector(source, stored, shape, where))
        elif isinstance(stored, StoredExperts):
            load.stacks[role] = load.stack(role, stored)
        else:
            load.matrices[role] = load.matrix(role, stored)
        for name in stored.names(shape[0]):
            source.release(name)
            if report:
                report(source.tensors[name].nbytes // _sharers(stored, shape))
    return Weights(load.matrices, load.stacks, load.vectors)


def is_bias(role: str) -> bool:
    """Whether the role is a bias of a matrix, which is stored with the matrix."""
    return role.rsplit(".", 1)[-1] in BIASES.values()


def packed_encoding(role: str, stored: Stored, source: TensorSource) -> Encoding:
    """Returns the encoding in which a role is packed: its stored encoding, but F32 instead of a router's bf16, because
    a router's products choose experts, so its activations are not rounded."""
    stored = stored.present(source.tensors)
    enc = encoding(source.tensors[stored.names(1)[0]].encoding)
    return encoding("F32") if enc.name == "BF16" and role.rsplit(".", 1)[-1] == "router" else enc


@dataclass
class _Loading:
    """The state of loading: what is packed so far, and its sources."""

    shapes: Mapping[str, tuple[int, ...]]
    source: TensorSource
    table: Mapping[str, Stored]
    backend: Backend
    where: str
    kept: Mapping[str, NDArray[np.uint8]] | None
    matrices: dict[str, Matrix] = field(default_factory=dict)
    stacks: dict[str, Stack] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)

    def stored(self, role: str) -> Stored:
        return self.table[role].present(self.source.tensors)

    def bias(self, role: str) -> F32 | None:
        """Returns the bias of a matrix, (outputs,) or (experts, outputs)."""
        prefix, _, short = role.rpartition(".")
        name = f"{prefix}.{BIASES[short]}" if short in BIASES else ""
        if name not in self.shapes:
            return None
        stored, shape = self.stored(name), self.shapes[name]
        if isinstance(stored, StoredExperts):
            return expert_biases(self.source, stored, shape)
        return _vector(self.source, stored, shape, self.where)

    def matrix(self, role: str, stored: Stored) -> Matrix:
        (n, k), bias = self.shapes[role], self.bias(role)
        enc = packed_encoding(role, stored, self.source)
        columns = self.source.columns(stored.name)
        slices = slices_of(k) if axis_of(role) is Axis.ROW else 1
        if self.kept is not None and isinstance(self.backend, PackingBackend):
            return self.backend.adopt(enc, self.kept[role], n, k, bias=bias, columns=columns, slices=slices)
        stored_as = encoding(self.source.tensors[stored.name].encoding)
        first = stored.first * stored_as.row_bytes(k)
        raw = self.source.raw(stored.name)[first : first + n * stored_as.row_bytes(k)]
        if enc != stored_as:
            raw = decode(stored_as, raw.reshape(n, -1), k).view(np.uint8)
        try:
            return self.backend.matrix(enc, raw, n, k, rows=stored.row_order(n), bias=bias, columns=columns,
                                       slices=slices)
        except ModelFileError as error:
            raise ModelFileError(f"{self.where}: tensor {quote(stored.name)}: {error}") from None

    def stack(self, role: str, stored: StoredExperts) -> Stack:
        (count, n, k), bias = self.shapes[role], self.bias(role)
        enc = packed_encoding(role, stored, self.source)
        if self.kept is not None and isinstance(self.backend, PackingBackend):
            return self.backend.adopt_stack(enc, self.kept[role], count, n, k, bias=bias)
        rows = expert_rows(self.source, stored, count, n, enc)
        try:
            return self.backend.stack(enc, rows, count, n, k, bias=bias)
        except ModelFileError as error:
            raise ModelFileError(f"{self.where}: tensor {quote(stored.names(count)[0])}: {error}") from None


def _sharers(stored: Stored, shape: tuple[int, ...]) -> int:
    """Returns about how many roles share the tensor."""
    if isinstance(stored, StoredExperts):
        return stored.parts
    return max(1, stored.rows // shape[0])


def _vector(source: TensorSource, stored: Stored, shape: tuple[int, ...], where: str) -> F32:
    """Returns a vector in canonical order, with the stored offset added."""
    info = source.tensors[stored.name]
    enc = encoding(info.encoding)
    if not enc.is_float:
        raise ModelFileError(f"{where}: tensor {info.name!r} is {info.encoding}; a vector must have a float encoding")
    raw: NDArray[np.uint8] = source.raw(info.name)
    values: F32 = decode(enc, raw, info.nbytes // enc.row_bytes(1))[0][stored.first : stored.first + shape[0]]
    if not np.isfinite(values).all():
        raise ModelFileError(f"{where}: tensor {info.name!r} has a value that is not finite")
    order = stored.row_order(len(values))
    values = values if order is None else values[order]
    return values + np.float32(stored.offset) if stored.offset else values
