"""Matrices of the NumPy oracle. Integer sums are exact, so no blocking of the library below shows in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drut.formats import decode as formats
from drut.formats.encoding import Encoding
from drut.kernels.numpy.numbers import quantize, round_bf16
from drut.kernels.ops import F32
from drut.kernels.weight import PAD, padded


@dataclass(frozen=True, eq=False)
class NumpyMatrix:
    """Quantized: codes (parts, 16 or 32, n padded) int8, scales and minima (parts, n padded). Float: (n, k)."""

    n: int
    k: int
    encoding: Encoding
    floats: F32 | None
    codes: NDArray[np.int8] | None
    scales: F32 | None
    minima: F32 | None
    bias: F32 | None

    @property
    def nbytes(self) -> int:
        parts = (self.floats, self.codes, self.scales, self.minima)
        return sum(part.nbytes for part in parts if part is not None)

    def rows(self, ids: NDArray[np.int32]) -> F32:
        """Rows `ids` as stored numbers."""
        if self.floats is not None:
            return self.floats[ids]
        assert self.codes is not None
        assert self.scales is not None
        values = self.codes[:, :, ids].astype(np.float32) * self.scales[:, None, ids]
        if self.minima is not None:
            values += self.minima[:, None, ids]
        return np.ascontiguousarray(values.transpose(2, 0, 1)).reshape(len(ids), self.k)

    def multiply(self, x: F32) -> F32:
        """x (rows, k) against every output: (rows, n)."""
        out = self._float(x) if self.floats is not None else self._integer(x)
        return out if self.bias is None else out + self.bias

    def _float(self, x: F32) -> F32:
        assert self.floats is not None
        if self.encoding.name == "BF16":
            x = round_bf16(x)
        # Row by row: a library's matrix product adds in another order for another number of rows.
        return np.stack([self.floats @ np.ascontiguousarray(row) for row in x])

    def _integer(self, x: F32) -> F32:
        assert self.codes is not None
        assert self.scales is not None
        codes, scale, scaled_sum = quantize(x, self.encoding.group)
        dots = np.matmul(codes.transpose(1, 0, 2), self.codes.astype(np.float32))  # (groups, rows, n): exact integers
        terms = dots * scale.T[:, :, None] * self.scales[:, None, :]
        if self.minima is not None:
            terms += scaled_sum.T[:, :, None] * self.minima[:, None, :]
        return np.asarray(np.add.reduce(terms, axis=0)[:, : self.n], np.float32)


@dataclass(frozen=True, eq=False)
class NumpyStack:
    """Matrices all alike."""

    matrices: tuple[NumpyMatrix, ...]

    @property
    def count(self) -> int:
        return len(self.matrices)

    @property
    def n(self) -> int:
        return self.matrices[0].n

    @property
    def k(self) -> int:
        return self.matrices[0].k

    @property
    def encoding(self) -> Encoding:
        return self.matrices[0].encoding

    @property
    def nbytes(self) -> int:
        return sum(m.nbytes for m in self.matrices)


def make_matrix(enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, rows: NDArray[np.int32] | None,
                bias: F32 | None) -> NumpyMatrix:
    """A matrix of `n` stored rows, in the order `rows`."""
    stored = raw.reshape(n, -1)
    if rows is not None:
        stored = stored[rows]
    if enc.is_float:
        return NumpyMatrix(n, k, enc, formats.decode(enc, stored, k), None, None, None, bias)
    codes, scale, minimum = formats.split(enc, stored, k)
    by_group = codes.reshape(n, k // enc.group, enc.group).transpose(1, 2, 0)
    minima = None if minimum is None else _pad(minimum.T)
    return NumpyMatrix(n, k, enc, None, _pad(by_group), _pad(scale.T), minima, bias)


def _pad(x: NDArray) -> NDArray:  # type: ignore[type-arg]
    """The last axis padded to whole panels: a reduction over one lone column would be another one."""
    width = padded(x.shape[-1])
    assert width % PAD == 0
    return np.ascontiguousarray(np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])]))
